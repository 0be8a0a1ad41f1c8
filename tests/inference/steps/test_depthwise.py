"""Depthwise convolution: every candidate against float64, on slices of wider buffers, whatever the epilogue."""

from __future__ import annotations

import random

import pytest
import torch
from inference.convolving import Case, errors
from inference.running import by_every_candidate, request

from nhwc.inference.native import Activation
from nhwc.inference.operations import Convolution, Fused
from nhwc.inference.steps import depthwise

BOUND = 3e-6


def labels_of(case: Case) -> list[str]:
    """The candidates of depthwise.py, whose results are checked."""
    found = {label: error for label, error in errors(case).items() if label.startswith("depthwise")}
    assert found
    assert max(found.values()) < BOUND, found
    return list(found)


@pytest.mark.parametrize("seed", [*range(6), *[pytest.param(s, marks=pytest.mark.slow) for s in range(6, 60)]])
def test_random_images(seed: int) -> None:
    torch.manual_seed(seed)
    choose = random.Random(seed)
    for _ in range(4):
        kernel, dilation = choose.choice([1, 2, 3, 3, 3, 4, 5, 5, 7, 7]), choose.choice([1, 1, 1, 2])
        channels, padding = choose.randint(1, 67), choose.randint(0, kernel)
        least = max(1, dilation * (kernel - 1) + 1 - 2 * padding)
        x = (choose.randint(0, 3), channels, choose.randint(least, 33), choose.randint(least, 33))
        case = Case(x, channels, kernel, choose.choice([1, 1, 2, 2, 3]), padding, dilation, channels)
        assert "depthwise general" in labels_of(case.varied(choose))


@pytest.mark.parametrize("multiplier", [2, 3])
@pytest.mark.parametrize("channels", [1, 5, 19])
def test_several_outputs_per_channel(channels: int, multiplier: int) -> None:
    case = Case(
        (2, channels, 9, 8), channels * multiplier, groups=channels, addend="first", activation=Activation.CLAMP
    )
    assert labels_of(case) == ["depthwise general"]


@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 2)])
def test_volumes(stride: int, dilation: int) -> None:
    case = Case((2, 37, 6, 7, 9), 37, 3, stride, 1, dilation, 37, addend="last", activation=Activation.SILU, threads=5)
    assert labels_of(case) == ["depthwise general"]


@pytest.mark.parametrize(("kernel", "stride", "choices"), [(3, 1, 3), (3, 2, 2), (5, 1, 6), (7, 2, 4)])
def test_choices(kernel: int, stride: int, choices: int) -> None:
    """One block of all channels at 3x3; at wider kernels blocks of 32 as well."""
    case = Case((1, 67, 33, 14), 67, kernel, stride, kernel // 2, groups=67, activation=Activation.CLAMP)
    assert len(labels_of(case)) == choices + 1


def test_nothing_for_other_convolutions() -> None:
    x, y = torch.randn(1, 4, 5, 5), torch.empty(1, 4, 5, 5)
    for groups in (1, 2):
        weight = torch.randn(4, 4 // groups, 3, 3)
        operation = Convolution(weight, None, (1, 1), (1, 1), (1, 1), groups)
        assert not list(depthwise.depthwise(request(operation, [x], y)))


def test_nothing_for_pixels_that_are_not_rows() -> None:
    x, y = torch.randn(1, 4, 5, 5), torch.empty(1, 4, 5, 5).contiguous(memory_format=torch.channels_last)
    operation = Convolution(torch.randn(4, 1, 3, 3), None, (1, 1), (1, 1), (1, 1), 4)
    assert not list(depthwise.depthwise(request(operation, [x], y)))
    assert list(depthwise.depthwise(request(operation, [y], y)))


def test_a_nan_reaches_the_windows_that_hold_it_and_no_others() -> None:
    x = torch.zeros(1, 16, 9, 9).contiguous(memory_format=torch.channels_last)
    x[0, 3, 4, 4] = float("nan")
    y = torch.empty_like(x)
    operation = Convolution(torch.ones(16, 1, 3, 3), None, (1, 1), (1, 1), (1, 1), 16)
    asked = request(operation, [x], y, Fused(Activation.CLAMP, 0.0, float("inf")))
    found = {label: y for label, y in by_every_candidate(asked, y).items() if label.startswith("depthwise")}
    assert found
    for result in found.values():
        assert result[0, 3, 3:6, 3:6].isnan().all()
        assert result.isnan().sum() == 9
