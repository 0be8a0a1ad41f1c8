"""Grouped convolution by rotations: against float64, and where it is not offered."""

from __future__ import annotations

from random import Random

import pytest
import torch
from inference.running import request
from inference.steps.outcomes import outcomes, sliced
from inference.steps.test_direct import BOUND, SEEDS, convolved, drawn

from nhwc.inference.operations import Convolution
from nhwc.inference.steps.packing import lanes
from nhwc.inference.steps.registry import candidates


@pytest.mark.parametrize("seed", SEEDS)
def test_random_groups(seed: int) -> None:
    torch.manual_seed(seed)
    choose = Random(seed)
    size, groups = choose.choice([each for each in (2, 4, 8, 16) if each <= lanes()]), choose.randint(2, 21)
    conv, extent = drawn(choose, choose.choice([2, 2, 3]), size * groups, size * groups, groups)
    x = sliced((choose.randint(0, 2), size * groups, *extent))[1]
    found = outcomes(conv, x, convolved(conv, x), choose)
    mine = {label: error for label, error in found.items() if label.startswith("grouped")}
    assert mine
    assert max(mine.values()) < BOUND, found


@pytest.mark.parametrize(("inputs", "outputs"), [(3, 3), (4, 8), (32, 32)])
def test_other_groups_are_refused(inputs: int, outputs: int) -> None:
    conv = Convolution(torch.randn(outputs * 2, inputs, 1, 1), None, (1, 1), (0, 0), (1, 1), 2)
    found = candidates(request(conv, [sliced((1, inputs * 2, 3, 3))[1]], sliced((1, outputs * 2, 3, 3))[1]))
    assert not [each.label for each in found if each.label.startswith("grouped")]
