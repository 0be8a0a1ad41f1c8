"""Transposed convolution: every candidate against float64, and the taps of its phases."""

from __future__ import annotations

from random import Random

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 the usual name
from inference.steps.outcomes import outcomes, sliced
from inference.steps.test_direct import BOUND, SEEDS

from nhwc.inference.operations import Convolution
from nhwc.inference.steps.transposed import phase_taps


@pytest.mark.parametrize("seed", SEEDS)
def test_random_convolutions(seed: int) -> None:
    torch.manual_seed(seed)
    choose = Random(seed)
    dimensions, groups = choose.choice([2, 2, 3]), choose.choice([1, 1, 2, 3])
    inputs, outputs = (choose.randint(1, 40) * groups for _ in range(2))
    kernel = tuple(choose.randint(1, 5) for _ in range(dimensions))
    stride = tuple(choose.randint(1, 3) for _ in range(dimensions))
    dilation = tuple(choose.randint(1, 3) for _ in range(dimensions))
    padding = tuple(choose.randint(0, d * (k - 1)) for d, k in zip(dilation, kernel, strict=True))
    beyond = tuple(choose.randint(0, max(s, d) - 1) for s, d in zip(stride, dilation, strict=True))
    # what is padded away is less than what the first rows give
    size = [choose.randint(1 + 2 * p, 1 + 2 * p + 8) for p in padding]
    bias = torch.randn(outputs) if choose.random() < 0.7 else None
    weight = torch.randn(inputs, outputs // groups, *kernel)
    conv = Convolution(weight, bias, stride, padding, dilation, groups, transposed=True, output_padding=beyond)
    x = sliced((choose.randint(0, 2), inputs, *size))[1]
    run = F.conv_transpose2d if dimensions == 2 else F.conv_transpose3d
    sums = run(
        x.double(), weight.double(), None if bias is None else bias.double(), stride, padding, beyond, groups, dilation
    )
    found = outcomes(conv, x, sums, choose)
    assert found
    assert max(found.values()) < BOUND, found


def test_every_tap_has_one_phase() -> None:
    for kernel, stride, padding, dilation in [(5, 2, 1, 1), (3, 3, 0, 2), (4, 2, 3, 2), (1, 3, 0, 1)]:
        phases = phase_taps(kernel, stride, padding, dilation)
        assert len(phases) == stride
        assert sorted(tap for taps in phases for tap in taps) == list(range(kernel))
