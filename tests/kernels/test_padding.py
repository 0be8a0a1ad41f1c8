"""Padding in every mode, 2-D and 3-D, forward and backward, against torch's own."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 the usual name
from kernels import conformance
from kernels.conformance import Sample, dtypes
from torch.autograd import gradcheck

import nhwc
from nhwc.kernels import native

KERNEL = "pad"
IMAGES = {"image": (2, 6, 7, 5), "narrow": (2, 3, 6, 9), "wide": (1, 70, 4, 6)}
VOLUMES = {"volume": (2, 6, 4, 5, 3), "narrow volume": (1, 3, 6, 4, 5)}
PADDINGS: dict[str, tuple[int, ...]] = {
    "by one": (1, 1, 1, 1, 1, 1),
    "unevenly": (2, 1, 0, 3, 1, 0),
    "one side": (0, 2, 0, 0, 0, 0),
}
CUT = {"cut": (-1, 2, 1, -2, 0, 1), "cut all round": (-1, -1, -1, 0, 0, -1)}
MODES = ("constant", "reflect", "replicate", "circular")


def sample(mode: str, padding: tuple[int, ...], shape: tuple[int, ...], label: str) -> Sample:
    return Sample(label, lambda x: F.pad(x, padding[: 2 * (len(shape) - 2)], mode=mode), (shape,))


def paddings(mode: str) -> dict[str, tuple[int, ...]]:
    return PADDINGS if mode in {"reflect", "replicate"} else PADDINGS | CUT


SAMPLES = [
    sample(mode, padding, shape, f"{mode}, {how}, {label}")
    for mode in MODES
    for (how, padding), (label, shape) in itertools.product(paddings(mode).items(), (IMAGES | VOLUMES).items())
]
SAMPLES += [
    Sample("constant, channels too", lambda x: F.pad(x, (1, 1, 1, 1, 2, 1), value=3.0), (IMAGES["image"],)),
    Sample("constant, one dimension", lambda x: F.pad(x, (1, 2)), (VOLUMES["volume"],)),
]
every = pytest.mark.parametrize("sample", SAMPLES, ids=str)


@every
@dtypes
def test_everything_is_channels_last(sample: Sample, dtype: torch.dtype) -> None:
    conformance.check_layout(KERNEL, sample, dtype)


CIRCULAR = [each for each in SAMPLES if each.name.startswith("circular")]
# torch's constant padding is a fill and a copy into the middle, and its gradient a clone of that
COPIED_ONCE = [each for each in SAMPLES if not each.name.startswith("constant")]


@pytest.mark.parametrize("sample", COPIED_ONCE, ids=str)
def test_nothing_is_copied(sample: Sample) -> None:
    conformance.check_no_copies(KERNEL, sample, torch.float32)


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_errors_are_at_most_twice_the_originals(sample: Sample, dtype: torch.dtype) -> None:
    conformance.check_accuracy(KERNEL, sample, dtype)


@every
def test_gradients_are_derivatives(sample: Sample) -> None:
    conformance.check_derivatives(KERNEL, sample)


@every
def test_contiguous_operands_take_the_original(sample: Sample) -> None:
    conformance.check_steps_aside(KERNEL, sample, torch.float32)


@every
def test_odd_layouts_answer_alike(sample: Sample) -> None:
    conformance.check_odd_layouts(KERNEL, sample)


def test_odd_shapes_answer_alike() -> None:
    images = [(2, 1, 4, 4), (2, 3, 1, 1), (0, 3, 4, 4), (2, 0, 4, 4), (1, 1, 1, 1), (2, 3, 0, 4), (2, 3, 2, 1)]
    paddings = ((1, 1, 1, 1), (0, 0, 0, 0), (2, 0, 0, 1), (-1, 0, 0, -1), (-1, -1, 0, 0), (-2, 2, 1, 0))
    for mode, padding in itertools.product(MODES, paddings):
        conformance.check_shapes(KERNEL, lambda x, mode=mode, padding=padding: F.pad(x, padding, mode), images)


@pytest.mark.parametrize("padding", [(5, 0, 0, 0), (0, 0, 9, 0), (-3, -3, 0, 0), (1, 1, 1, 1, 1, 1), (1,)], ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_bad_paddings_answer_alike(mode: str, padding: tuple[int, ...]) -> None:
    image = conformance.canonical(torch.randn(2, 3, 4, 4))
    conformance.compare_calls(KERNEL, lambda: F.pad(image, padding, mode), str(padding))


def test_wrong_gradients_are_refused_in_the_originals_words() -> None:
    image, wrong = (conformance.canonical(torch.randn(2, 3, 4, size)) for size in (4, 5))
    for name, padding in itertools.product(("reflection_pad2d", "replication_pad2d"), ([1, 1, 1, 1], [9, 9, 9, 9])):
        backward = getattr(torch.ops.aten, f"{name}_backward")
        conformance.check_error(KERNEL, lambda backward=backward, padding=padding: backward(wrong, image, padding))


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # torch's own rules for forward gradients use it
def test_many_gradients_at_once_and_forward_ones_are_right() -> None:
    image = conformance.canonical(torch.randn(1, 2, 3, 2, dtype=torch.float64)).requires_grad_()
    with nhwc.kernels.use(KERNEL):
        for mode in MODES:

            def call(x: torch.Tensor, mode: str = mode) -> torch.Tensor:
                return F.pad(x, (1, 0, 1, 1), mode)

            assert gradcheck(call, image, check_forward_ad=True, check_batched_grad=True)
            rows = torch.autograd.functional.jacobian(call, image, vectorize=True)
            torch.testing.assert_close(rows, torch.autograd.functional.jacobian(call, image))


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool, torch.complex64], ids=str)
def test_circular_padding_of_other_types_keeps_the_format(dtype: torch.dtype) -> None:
    image = conformance.canonical((torch.randn(2, 3, 4, 5) > 0).to(dtype))
    wanted = F.pad(image, (2, 1, 0, -1), "circular")
    with nhwc.kernels.use(KERNEL):
        found = F.pad(image, (2, 1, 0, -1), "circular")
    assert conformance.is_canonical(found)
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("sample", CIRCULAR, ids=str)
def test_without_the_library_rows_are_selected(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "is_available", lambda: False)
    conformance.check_accuracy(KERNEL, sample, torch.float32)
    conformance.check_derivatives(KERNEL, sample)
    conformance.check_layout(KERNEL, sample, torch.float32, ["channels_last"])


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    image = conformance.canonical(torch.randn(2, 40, 64, 40)).requires_grad_()
    grad = conformance.canonical(torch.randn(2, 40, 67, 44))
    before = torch.get_num_threads()
    results: list[Any] = []
    with nhwc.kernels.use(KERNEL):
        for threads in (1, before + 1):
            torch.set_num_threads(threads)
            output = F.pad(image, (2, 2, 3, 0), "circular")
            results.append((output, *torch.autograd.grad(output, image, grad)))
    torch.set_num_threads(before)
    assert all(map(torch.equal, *results))
