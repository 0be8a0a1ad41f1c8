"""Softmax, indexing, joining, cutting, shuffling and rolling: what moves or mixes channels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 the usual name
from kernels import conformance
from kernels.conformance import DTYPES, Sample, canonical
from kernels.requirements import asked, keeps

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
    name: str, call: Callable[..., Any], make: Any = None, extra: tuple[tuple[int, ...], ...] = ()
) -> list[Sample]:
    return [
        Sample(f"{name} {label}", call, (shape, *extra), make) for label, shape in (("2-D", IMAGE), ("3-D", VOLUME))
    ]


SOFTMAX = [
    *both("softmax", lambda x: x.softmax(1)),
    *both("log_softmax", lambda x: x.log_softmax(1)),
    *both("softmax over rows", lambda x: x.softmax(2)),
    *both("log_softmax over columns", lambda x: x.log_softmax(-1)),
]
INDEXING = [
    *both("index_select", lambda x, i: x.index_select(1, i), order(5, 4), ((5,),)),
    *both("index_select of rows", lambda x, i: x.index_select(2, i), order(4, 3), ((4,),)),
    *both("x[:, order]", lambda x, i: x[:, i], order(5, 4), ((5,),)),
    *both("x[:, negative]", lambda x, i: x[:, i], order(5, 4, negative=True), ((5,),)),
    *both("x[order]", lambda x, i: x[i], order(3, 2), ((3,),)),
]
ROLL = [
    *both("roll", lambda x: x.roll((1, -2), (2, 3))),
    *both("roll of channels", lambda x: x.roll(1, 1)),
]
CAT = [
    Sample("of two", lambda x, y: torch.cat([x, y], 1), (IMAGE, (2, 3, 5, 7))),
    Sample("of two 3-D", lambda x, y: torch.cat([x, y], 1), (VOLUME, (2, 3, 3, 5, 4))),
    Sample("of batches", lambda x, y: torch.cat([x, y], 0), (IMAGE, IMAGE)),
]
#: Calls of several operators, which themselves refuse most odd layouts.
CAT_OF_CHUNKS = both("of chunks", lambda x: torch.cat(x.chunk(2, 1)[::-1], 1))
SHUFFLE_BY_HAND = [Sample("by hand", by_hand, (IMAGE,))]
SLICE = [
    *both("slice", lambda x: x[:, 1:3] * 2.0),
    *both("slice with a step", lambda x: x[:, ::2] * 2.0),
    *both("crop", lambda x: x[:, :, 1:] * 2.0),
]
SHUFFLE = [
    Sample("by reshape", by_reshape, (IMAGE,)),
    Sample("as an operator", lambda x: F.channel_shuffle(x, 3), (IMAGE,)),
]
RESULTS = [
    *asked("softmax", SOFTMAX, "channels last", dtypes=DTYPES),
    *asked("channel_shuffle", [*SHUFFLE, *SHUFFLE_BY_HAND], "channels last", dtypes=DTYPES),
    # the gradients of what cat joins are views of the incoming one
    *asked(
        "cat", [replace(each, differentiable=False) for each in [*CAT, *CAT_OF_CHUNKS]], "channels last", dtypes=DTYPES
    ),
    *asked("indexing", INDEXING, "channels last", dtypes=DTYPES),
    *asked("roll", ROLL, "channels last", dtypes=DTYPES),
]
#: Not of the slices: putting a gradient in its place is a copy.
COPIES = [
    *asked("softmax", SOFTMAX, "no copies"),
    *asked("channel_shuffle", [*SHUFFLE, *SHUFFLE_BY_HAND], "no copies"),
    *asked("indexing", INDEXING, "no copies"),
    *asked("roll", ROLL, "no copies"),
    *asked("cat", [*CAT, *CAT_OF_CHUNKS], "no copies"),
]
ODD = {
    "softmax": SOFTMAX,
    "indexing": INDEXING,
    "roll": ROLL,
    "cat": CAT,
    "slice_backward": SLICE,
    "channel_shuffle": SHUFFLE,
}
ALL = {**ODD, "cat": [*CAT, *CAT_OF_CHUNKS], "channel_shuffle": [*SHUFFLE, *SHUFFLE_BY_HAND]}


@keeps(
    RESULTS,
    COPIES,
    *(asked(kernel, samples, "accuracy", dtypes=DTYPES) for kernel, samples in ALL.items()),
    *(asked(kernel, samples, "derivatives", "steps aside") for kernel, samples in ALL.items()),
    *(asked(kernel, samples, "odd layouts") for kernel, samples in ODD.items()),
)
def test_what_moves_channels_keeps_to(check: Callable[[], None]) -> None:
    check()


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


@pytest.mark.parametrize("logarithm", [False, True])
@pytest.mark.parametrize("channels", [2, 5, 16, 21, 40, 64, 65, 130])
@conformance.dtypes
def test_softmax_of_any_number_of_channels(channels: int, logarithm: bool, dtype: torch.dtype) -> None:
    def call(x: torch.Tensor) -> torch.Tensor:
        return x.log_softmax(1) if logarithm else x.softmax(1)

    conformance.check_accuracy("softmax", Sample("softmax", call, ((3, channels, 5, 7),)), dtype)


@pytest.mark.parametrize("index", [[0, 2, 5], [5, 0], [1, 1, 4, 1], [3, 2, 1, 0, 5, 4]], ids=str)
@conformance.dtypes
def test_the_gradient_of_picked_channels(index: list[int], dtype: torch.dtype) -> None:
    plain = torch.randn(2, 6, 5, 7).to(dtype)
    gradient = torch.randn(2, len(index), 5, 7).to(dtype)
    x = plain.double().requires_grad_()
    (expected,) = torch.autograd.grad(x.index_select(1, torch.tensor(index)), x, gradient.double())
    last = canonical(plain).requires_grad_()
    with nhwc.kernels.use("indexing"):
        picked = last.index_select(1, torch.tensor(index))
        (found,) = torch.autograd.grad(picked, last, canonical(gradient))
    assert conformance.is_canonical(found)
    torch.testing.assert_close(found.double(), expected, rtol=2 * torch.finfo(dtype).eps, atol=torch.finfo(dtype).eps)


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


def test_a_shuffled_tensor_may_be_cut_otherwise() -> None:
    """reshape and flatten copy through the same operators as a shuffle does."""
    turned = torch.randn(2, 16, 6, 5).to(memory_format=torch.channels_last).view(2, 4, 4, 6, 5).transpose(1, 2)
    ways = [lambda t: t.flatten(1), lambda t: t.reshape(2, 4, -1), lambda t: t.reshape(8, 4, 6, 5), torch.ravel]
    for way in ways:
        with nhwc.kernels.use("channel_shuffle"):
            found = way(turned)
        assert torch.equal(found, way(turned))
