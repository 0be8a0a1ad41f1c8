"""Linear layers: every candidate against float64, and what they refuse."""

from __future__ import annotations

from random import Random

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 the usual name
from inference.running import request
from inference.steps.outcomes import outcomes, sliced
from inference.steps.test_direct import BOUND, SEEDS

from nhwc.inference.operations import Linear
from nhwc.inference.steps.registry import candidates


@pytest.mark.parametrize("seed", SEEDS)
def test_random_layers(seed: int) -> None:
    torch.manual_seed(seed)
    choose = Random(seed)
    inputs, outputs = choose.choice([1, 5, 67, 300, 1300]), choose.choice([1, 10, 67, 200])
    leading = choose.choice([(0,), (1,), (2,), (3,), (50,), (2, 5), (2, 3, 4), (2, 1, 3, 2)])
    weight, bias = torch.randn(outputs, inputs), torch.randn(outputs) if choose.random() < 0.7 else None
    x = sliced((*leading, inputs), last=True)[1]
    sums = F.linear(x.double(), weight.double(), None if bias is None else bias.double())
    found = outcomes(Linear(weight, bias), x, sums, choose, last=True)
    assert found
    assert max(found.values()) < BOUND, found


def test_features_apart_and_five_leading_dimensions_are_refused() -> None:
    layer = Linear(torch.randn(4, 3), None)
    assert not candidates(request(layer, [torch.randn(3, 5).t()], torch.empty(5, 4)))
    assert not candidates(request(layer, [torch.randn(1, 1, 1, 1, 2, 3)], torch.empty(1, 1, 1, 1, 2, 4)))
