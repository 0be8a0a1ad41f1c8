"""Linear layers: every candidate against float64, and what they refuse."""

from __future__ import annotations

from random import Random

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 the usual name
from inference.running import by_every_candidate, request
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
    narrow = choose.choice([torch.bfloat16, torch.float16])
    weight = weight.to(narrow).float()  # so that rounding changes nothing
    x = sliced((*leading, inputs), last=True)[1]
    sums = F.linear(x.double(), weight.double(), None if bias is None else bias.double())
    found = outcomes(Linear(weight, bias, narrow), x, sums, choose, last=True)
    assert sum(label.startswith("narrow") for label in found) == 2
    assert max(found.values()) < BOUND, found


def test_features_apart_and_five_leading_dimensions_are_refused() -> None:
    layer = Linear(torch.randn(4, 3), None)
    assert not candidates(request(layer, [torch.randn(3, 5).t()], torch.empty(5, 4)))
    assert not candidates(request(layer, [torch.randn(1, 1, 1, 1, 2, 3)], torch.empty(1, 1, 1, 1, 2, 4)))


def test_exact_requests_and_plain_layers_keep_float32() -> None:
    x, y = torch.randn(2, 8), torch.empty(2, 4)
    weight = torch.randn(4, 8)
    for layer, exact in ((Linear(weight, None, torch.bfloat16), True), (Linear(weight, None), False)):
        found = candidates(request(layer, [x], y, exact=exact))
        assert found
        assert not any(each.label.startswith("narrow") for each in found)


def test_float16_weights_that_are_no_normal_numbers() -> None:
    weight = torch.tensor([[6e-8, -6e-8, 5.9e-5, -65504.0, 0.0, -0.0, 6.1e-5, 1.0]]).half().float()
    x, y = torch.eye(8), torch.empty(8, 1)
    for label, result in by_every_candidate(request(Linear(weight, None, torch.float16), [x], y), y).items():
        assert torch.equal(result, weight.t()), label
