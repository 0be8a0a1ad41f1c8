"""Code that goes through numpy shows in no operator call: the module around it is named."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import nhwc
from nhwc.model import Phase
from nhwc.proof import Outcome

pytestmark = pytest.mark.usefixtures("few_threads")


def in_memory_order(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x.detach().numpy().ravel(order="K").copy()).view(x.shape)


class BetweenParts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(in_memory_order(self.first(x))).mean((2, 3))


class Backward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
        return in_memory_order(gradient) * 2


class WrongBackward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(Backward.apply(self.first(x)))


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("inside", [False, True])
def test_a_module_that_changes_values_between_its_parts_is_named(train: bool, inside: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Identity(), BetweenParts()) if inside else BetweenParts()
    (variant,) = nhwc.verify(model, torch.randn(2, 3, 8, 8), train=train).variants
    assert variant.outcome is Outcome.DIVERGED, variant.reason
    assert variant.divergence is not None
    assert (variant.divergence.operator, variant.divergence.module) == ("BetweenParts", "1" if inside else "")


def test_a_wrong_backward_past_the_dispatcher_is_no_discontinuity() -> None:
    torch.manual_seed(0)
    (variant,) = nhwc.verify(WrongBackward(), torch.randn(2, 3, 8, 8), train=True).variants
    assert variant.outcome is Outcome.DIVERGED, variant.reason
    assert "ReLU" not in variant.reason
    assert variant.divergence is not None
    assert (variant.divergence.module, variant.divergence.phase) == ("first", Phase.BACKWARD)
