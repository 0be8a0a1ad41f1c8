"""Average pooling, regular and adaptive: every argument, 2-D and 3-D, against torch's own."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 the usual name
from kernels import conformance
from kernels.conformance import DTYPES, Sample
from kernels.requirements import asked, keeps

import nhwc
from nhwc.kernels import native

VOLUMES = {"3-D": (2, 6, 5, 7, 8), "narrow": (2, 3, 6, 4, 9), "wide": (1, 70, 4, 6, 5)}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "halves": {"kernel_size": 2},
    "overlapping": {"kernel_size": 3, "stride": 1, "padding": 1},
    "without padding in the count": {"kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": False},
    "ceil": {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
    "ceil without padding": {"kernel_size": 2, "stride": 2, "ceil_mode": True, "count_include_pad": False},
    "a divisor": {"kernel_size": (3, 2, 1), "stride": (1, 2, 3), "padding": (1, 0, 0), "divisor_override": 5},
    "gaps": {"kernel_size": 1, "stride": 3},
}
REGULAR = [
    Sample(f"{how}, {label}", lambda x, options=options: F.avg_pool3d(x, **options), (shape,))
    for (how, options), (label, shape) in itertools.product(ARGUMENTS.items(), VOLUMES.items())
]
ADAPTIVE = [
    Sample("2-D, divided", lambda x: F.adaptive_avg_pool2d(x, 3), ((2, 5, 6, 9),)),
    Sample("2-D, uneven", lambda x: F.adaptive_avg_pool2d(x, (4, 7)), ((2, 70, 9, 8),)),
    Sample("2-D, more than there are", lambda x: F.adaptive_avg_pool2d(x, (9, 11)), ((2, 6, 5, 7),)),
    Sample("2-D, global", lambda x: F.adaptive_avg_pool2d(x, 1), ((2, 40, 37, 41),)),
    Sample("3-D, uneven", lambda x: F.adaptive_avg_pool3d(x, (2, 4, 3)), ((2, 5, 5, 7, 8),)),
    Sample("3-D, long windows", lambda x: F.adaptive_avg_pool3d(x, (2, 1, 2)), ((2, 33, 9, 20, 21),)),
    Sample("3-D, many long windows", lambda x: F.adaptive_avg_pool3d(x, (4, 4, 2)), ((2, 5, 17, 18, 19),)),
    Sample("3-D, global", lambda x: F.adaptive_avg_pool3d(x, 1), ((2, 6, 9, 8, 7),)),
]
HALVES = (torch.bfloat16, torch.float16)
ALL = {"avg_pool3d": REGULAR, "adaptive_avg_pool": ADAPTIVE}
SMALL = {kernel: [each for each in samples if max(each.shapes[0]) < 30] for kernel, samples in ALL.items()}


@keeps(
    *(asked(kernel, samples, "channels last", dtypes=DTYPES) for kernel, samples in ALL.items()),
    *(asked(kernel, samples, "accuracy", dtypes=(torch.float32, torch.float64)) for kernel, samples in ALL.items()),
    # torch's avg_pool3d has no 16-bit types on the CPU: there is no original to compare with
    asked("adaptive_avg_pool", ADAPTIVE, "accuracy", dtypes=HALVES),
    *(asked(kernel, samples, "no copies", "steps aside", "odd layouts") for kernel, samples in ALL.items()),
    *(asked(kernel, samples, "derivatives") for kernel, samples in SMALL.items()),
)
def test_they_keep_to(check: Callable[[], None]) -> None:
    check()


@pytest.mark.parametrize("sample", REGULAR, ids=str)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_avg_pool3d_rounds_16_bit_values_once_forward(sample: Sample, dtype: torch.dtype) -> None:
    operands = sample.operands(dtype)
    exact = conformance.run(sample, [each.detach().double().requires_grad_() for each in operands], "contiguous")
    with nhwc.kernels.use("avg_pool3d"):
        found = conformance.run(sample, operands, "contiguous")
    (output,), (gradient,) = found
    (wanted,), (wanted_gradient,) = exact
    assert gradient is not None
    assert wanted_gradient is not None
    assert output.dtype == gradient.dtype == dtype
    half = torch.finfo(dtype).eps / 2
    torch.testing.assert_close(output.double(), wanted, rtol=half, atol=1e-6)
    # the incoming gradient is rounded too: once per output that covers a pixel
    torch.testing.assert_close(gradient.double(), wanted_gradient, rtol=4 * half, atol=4 * half)


def test_odd_shapes_answer_alike() -> None:
    volumes = [(2, 1, 4, 4, 4), (2, 3, 2, 2, 2), (0, 3, 4, 4, 4), (2, 0, 4, 4, 4), (1, 1, 2, 2, 2), (2, 3, 1, 1, 1)]
    conformance.check_shapes("avg_pool3d", lambda x: F.avg_pool3d(x, 2), volumes)
    conformance.check_shapes("avg_pool3d", lambda x: F.avg_pool3d(x, 1), volumes)
    for size in (0, 1, 3):
        conformance.check_shapes("adaptive_avg_pool", lambda x, size=size: F.adaptive_avg_pool3d(x, size), volumes)
        images = [each[:-1] for each in volumes]
        conformance.check_shapes("adaptive_avg_pool", lambda x, size=size: F.adaptive_avg_pool2d(x, size), images)


def test_sizes_that_are_left_open_are_the_inputs() -> None:
    image = conformance.canonical(torch.randn(2, 3, 5, 6))
    conformance.compare_calls("adaptive_avg_pool", lambda: F.adaptive_avg_pool2d(image, (None, 2)), "open")


BAD: dict[str, dict[str, Any]] = {
    "too large": {"kernel_size": 9},
    "no window": {"kernel_size": 0},
    "padding beyond half": {"kernel_size": 2, "padding": 2},
    "negative padding": {"kernel_size": 2, "padding": -1},
    "divisor of zero": {"kernel_size": 2, "divisor_override": 0},
    "no stride": {"kernel_size": 2, "stride": 0},
    "two sizes": {"kernel_size": (2, 2)},
}


@pytest.mark.parametrize("options", BAD.values(), ids=BAD)
def test_bad_arguments_are_refused_in_the_originals_words(options: dict[str, Any]) -> None:
    volume = conformance.canonical(torch.randn(2, 3, 4, 4, 4))
    conformance.check_error("avg_pool3d", lambda: F.avg_pool3d(volume, **options))


def test_a_wrong_gradient_is_refused_in_the_originals_words() -> None:
    volume, wrong = (conformance.canonical(torch.randn(2, 3, 4, size, 4)) for size in (4, 3))
    arguments = [2] * 3, [2] * 3, [0] * 3, False, True, None
    backward = torch.ops.aten.avg_pool3d_backward
    conformance.check_error("avg_pool3d", lambda: backward(wrong, volume, *arguments))


def test_negative_sizes_are_refused_in_the_originals_words() -> None:
    image = conformance.canonical(torch.randn(2, 3, 4, 4))
    conformance.check_error("adaptive_avg_pool", lambda: F.adaptive_avg_pool2d(image, -1))


def test_infinite_and_undefined_values_stay_in_their_windows() -> None:
    volume = torch.randn(2, 3, 4, 4, 6)
    volume[0, 1, 0, 1, 2], volume[1, 2, 3, 3, 5], volume[1, 0, 2, 2, 2] = torch.nan, torch.inf, -torch.inf
    wanted = F.avg_pool3d(volume, 2)
    with nhwc.kernels.use("avg_pool3d"):
        found = F.avg_pool3d(conformance.canonical(volume), 2)
    torch.testing.assert_close(found, wanted, equal_nan=True)


@pytest.mark.parametrize("sample", REGULAR, ids=str)
def test_without_the_library_two_poolings_of_images_do_it(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "is_available", lambda: False)
    operands = sample.operands(torch.float32)
    wanted = sample.call(*operands)
    with nhwc.kernels.use("avg_pool3d"):
        found = sample.call(*operands)
    assert conformance.is_canonical(found)
    torch.testing.assert_close(found, wanted)


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    volume = conformance.canonical(torch.randn(2, 40, 16, 24, 24))
    before = torch.get_num_threads()
    results = []
    with nhwc.kernels.use("avg_pool3d", "adaptive_avg_pool"):
        for threads in (1, before + 1):
            torch.set_num_threads(threads)
            results.append((F.avg_pool3d(volume, 3, 2, 1), F.adaptive_avg_pool3d(volume, 1)))
    torch.set_num_threads(before)
    assert all(map(torch.equal, *results))
