"""Softmax, indexing, joining, cutting, shuffling and rolling: what moves or mixes channels."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 the usual name
from kernels import conformance
from kernels.conformance import Sample, canonical, dtypes

import nhwc

IMAGE, VOLUME = (2, 6, 5, 7), (2, 4, 3, 5, 4)


def by_hand(x: torch.Tensor) -> torch.Tensor:
    n, c, h, w = x.shape
    return x.view(n, 2, c // 2, h, w).transpose(1, 2).contiguous().view(n, c, h, w)


def by_reshape(x: torch.Tensor) -> torch.Tensor:
    n, c, h, w = x.shape
    return x.view(n, c // 3, 3, h, w).transpose(1, 2).reshape(n, -1, h, w)


def order(length: int, size: int, negative: bool = False) -> dict[int, object]:
    def draw(random: torch.Generator) -> torch.Tensor:
        drawn = torch.randint(size, (length,), generator=random)
        return drawn - size if negative else drawn

    return {1: draw}


def both(
    kernel: str, name: str, call: object, make: object = None, extra: tuple[tuple[int, ...], ...] = ()
) -> list[object]:
    return [
        pytest.param(kernel, Sample(f"{name} {label}", call, (shape, *extra), make), id=f"{name} {label}")  # type: ignore[arg-type]
        for label, shape in (("2-D", IMAGE), ("3-D", VOLUME))
    ]


CASES = [
    *both("softmax", "softmax", lambda x: x.softmax(1)),
    *both("softmax", "log_softmax", lambda x: x.log_softmax(1)),
    *both("softmax", "softmax over rows", lambda x: x.softmax(2)),
    *both("softmax", "log_softmax over columns", lambda x: x.log_softmax(-1)),
    *both("indexing", "index_select", lambda x, i: x.index_select(1, i), order(5, 4), ((5,),)),
    *both("indexing", "index_select of rows", lambda x, i: x.index_select(2, i), order(4, 3), ((4,),)),
    *both("indexing", "x[:, order]", lambda x, i: x[:, i], order(5, 4), ((5,),)),
    *both("indexing", "x[:, negative]", lambda x, i: x[:, i], order(5, 4, negative=True), ((5,),)),
    *both("indexing", "x[order]", lambda x, i: x[i], order(3, 2), ((3,),)),
    *both("roll", "roll", lambda x: x.roll((1, -2), (2, 3))),
    *both("roll", "roll of channels", lambda x: x.roll(1, 1)),
    pytest.param("cat", Sample("cat", lambda x, y: torch.cat([x, y], 1), (IMAGE, (2, 3, 5, 7))), id="cat 2-D"),
    pytest.param("cat", Sample("cat 3-D", lambda x, y: torch.cat([x, y], 1), (VOLUME, (2, 3, 3, 5, 4))), id="cat 3-D"),
    pytest.param("cat", Sample("cat batch", lambda x, y: torch.cat([x, y], 0), (IMAGE, IMAGE)), id="cat of batches"),
    *both("cat", "cat of chunks", lambda x: torch.cat(x.chunk(2, 1)[::-1], 1)),
    *both("slice_backward", "slice", lambda x: x[:, 1:3] * 2.0),
    *both("slice_backward", "slice with a step", lambda x: x[:, ::2] * 2.0),
    *both("slice_backward", "crop", lambda x: x[:, :, 1:] * 2.0),
    pytest.param("channel_shuffle", Sample("by hand", by_hand, (IMAGE,)), id="shuffle by hand"),
    pytest.param("channel_shuffle", Sample("reshape", by_reshape, (IMAGE,)), id="shuffle by reshape"),
    pytest.param(
        "channel_shuffle", Sample("operator", lambda x: F.channel_shuffle(x, 3), (IMAGE,)), id="shuffle operator"
    ),
]
every = pytest.mark.parametrize(("kernel", "sample"), CASES)


@every
@dtypes
def test_everything_is_channels_last(kernel: str, sample: Sample, dtype: torch.dtype) -> None:
    if kernel == "slice_backward":
        pytest.skip("a slice itself is a view: its gradient is judged below")
    if kernel == "cat":
        pytest.skip("the operands' gradients are views of one gradient: judged below")
    hows = conformance.GRADIENTS if kernel in {"softmax", "channel_shuffle"} else ("channels_last",)
    conformance.check_layout(kernel, sample, dtype, hows)


@every
@dtypes
def test_errors_are_no_larger(kernel: str, sample: Sample, dtype: torch.dtype) -> None:
    conformance.check_accuracy(kernel, sample, dtype)


@every
def test_nothing_is_copied(kernel: str, sample: Sample) -> None:
    if kernel == "slice_backward":
        pytest.skip("the gradient of a slice is put in its place: that is its work")
    conformance.check_no_copies(kernel, sample, torch.float32)


@every
def test_derivatives(kernel: str, sample: Sample) -> None:
    conformance.check_derivatives(kernel, sample)


@every
def test_contiguous_input_takes_the_original(kernel: str, sample: Sample) -> None:
    conformance.check_steps_aside(kernel, sample, torch.float32)


@every
def test_odd_layouts(kernel: str, sample: Sample) -> None:
    if "chunks" in sample.name or "hand" in sample.name:
        pytest.skip("the call itself refuses most of them")
    conformance.check_odd_layouts(kernel, sample)


SHAPES = [(0, 2, 4, 4), (2, 1, 4, 4), (2, 2, 1, 1), (2, 2, 1, 5), (1, 2, 4, 4)]


@pytest.mark.parametrize(
    ("kernel", "call"),
    [
        ("softmax", lambda x: x.softmax(1)),
        ("indexing", lambda x: x[:, torch.tensor([0])]),
        ("roll", lambda x: x.roll(1, 2)),
        ("cat", lambda x: torch.cat([x, x], 1)),
        ("channel_shuffle", lambda x: F.channel_shuffle(x, x.shape[1])),
        ("channel_shuffle", by_hand),
    ],
)
def test_shapes(kernel: str, call: object) -> None:
    conformance.check_shapes(kernel, call, SHAPES if call is not by_hand else SHAPES[2:])  # type: ignore[arg-type]


def test_a_contiguous_operand_of_cat_is_placed_in_channels_last() -> None:
    x, y = canonical(torch.randn(2, 20, 9, 11)), torch.randn(2, 13, 9, 11)
    with nhwc.kernels.use("cat"):
        for operands in ((x, y), (y, x)):
            result = torch.cat(operands, 1)
            assert conformance.is_canonical(result)
            assert torch.equal(result, torch.cat([each.contiguous() for each in operands], 1))


def test_contiguous_tensors_alone_stay_contiguous() -> None:
    with nhwc.kernels.use():
        assert torch.cat([torch.randn(2, 3, 4, 4), torch.randn(2, 3, 4, 4)], 1).is_contiguous()


def test_the_gradient_of_a_slice_is_laid_out_as_the_one_that_comes_in() -> None:
    x = canonical(torch.randn(2, 6, 5, 7)).requires_grad_()
    with nhwc.kernels.use("slice_backward", "cat"):
        left, right = x.split((2, 4), 1)
        y = left.relu()
        (gradient,) = torch.autograd.grad(y, x, canonical(torch.randn_like(y)))
        (joined,) = torch.autograd.grad(torch.cat([right, left], 1), x, canonical(torch.randn(x.shape)))
    assert conformance.is_canonical(gradient)
    assert conformance.is_canonical(joined)


def test_a_hand_made_shuffle_is_a_view_all_the_way_back() -> None:
    x = canonical(torch.randn(2, 8, 5, 7)).requires_grad_()
    with nhwc.kernels.use("channel_shuffle"):
        gradient = canonical(torch.ones(x.shape))
        trace = nhwc.record(lambda: torch.autograd.grad(by_hand(x).relu(), x, gradient))
    names = [call.name for call in trace.calls if not call.view]
    assert "clone" not in names
    assert "copy_" not in names


@pytest.mark.parametrize(
    ("kernel", "call"),
    [
        ("softmax", lambda x: x.softmax(4)),
        ("indexing", lambda x: x.index_select(1, torch.tensor([9]))),
        ("indexing", lambda x: x[:, torch.tensor([-7])]),
        ("cat", lambda x: torch.cat([x, x[:, :, :2]], 1)),
        ("cat", lambda x: torch.cat([x, x], 7)),
        ("roll", lambda x: x.roll(1, 9)),
        ("channel_shuffle", lambda x: F.channel_shuffle(x, 4)),
    ],
)
def test_bad_input_is_refused_in_torchs_words(kernel: str, call: object) -> None:
    conformance.check_error(kernel, lambda: call(canonical(torch.randn(2, 6, 4, 4))))  # type: ignore[operator]
