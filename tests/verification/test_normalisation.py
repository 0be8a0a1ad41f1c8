"""Constant inputs, whose normalisation divides rounding by next to nothing, are nobody's fault."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import nhwc
from nhwc.verification.normalisation import move_statistics

pytestmark = pytest.mark.usefixtures("few_threads")


def padded() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1)]
    return nn.Sequential(*layers, nn.BatchNorm2d(8), nn.Conv2d(8, 4, 3, padding=1))


def unpadded() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3, padding=1))


@pytest.mark.parametrize("model", [padded, unpadded])
@pytest.mark.parametrize(
    "x",
    [torch.zeros(2, 3, 16, 16), torch.ones(4, 3, 8, 8), torch.full((4, 3, 32, 32), 0.5)],
    ids=["zeros", "ones", "halves"],
)
def test_constant_inputs_pass_in_training(model: object, x: torch.Tensor) -> None:
    report = nhwc.verify(model(), x, train=True)  # type: ignore[operator]
    assert report.passed, str(report)


class Wrong(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.planted.wrong_values(x)


def test_a_fault_behind_a_normalisation_of_constants_is_still_found() -> None:
    from verification import planted  # noqa: F401 it registers its operators

    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), Wrong())
    (variant,) = nhwc.verify(model.eval(), torch.full((2, 3, 8, 8), 0.5)).variants
    assert variant.divergence is not None
    assert variant.divergence.operator == "planted.wrong_values.default"


@pytest.mark.parametrize("constant", [False, True])
def test_moved_statistics_and_output_belong_together(constant: bool) -> None:
    x = torch.full((2, 4, 8, 8), 0.5) if constant else torch.randn(2, 4, 8, 8) + 1
    weight, bias, mean, variance = torch.rand(4), torch.rand(4), torch.zeros(4), torch.ones(4)
    args = (x, weight, bias, mean, variance, True, 0.1, 1e-5)
    func = torch.ops.aten.native_batch_norm.default
    output, found, inverse = result = func(*args)
    before = found.clone()
    move_statistics(func, args, result, 1, 1000.0)
    assert not torch.equal(found, before)
    column = [each.view(1, -1, 1, 1) for each in (found, inverse, weight, bias)]
    again = (x - column[0]) * column[1] * column[2] + column[3]
    assert torch.allclose(output, again, atol=1e-3 * float(again.abs().max()))
    assert torch.allclose(mean, found * 0.1, rtol=1e-5)


def test_moved_sums_of_the_backward_pass_belong_together() -> None:
    x, gradient, weight = torch.randn(2, 4, 8, 8), torch.rand(2, 4, 8, 8) + 1, torch.rand(4)
    _, mean, inverse = torch.ops.aten.native_batch_norm.default(x, weight, None, None, None, True, 0.1, 1e-5)
    func = torch.ops.aten.native_batch_norm_backward.default
    args = (gradient, x, weight, None, None, mean, inverse, True, 1e-5, [True, True, True])
    to_input, to_weight, to_bias = result = func(*args)
    before = to_input.clone()
    move_statistics(func, args, result, 1, 1000.0)
    assert not torch.equal(to_input, before)
    column = [each.view(1, -1, 1, 1) for each in (mean, inverse, weight, to_weight / 128, to_bias / 128)]
    normal = (x - column[0]) * column[1]
    again = column[2] * column[1] * (gradient - column[4] - normal * column[3])
    assert torch.allclose(to_input, again, atol=1e-5)


def test_moved_statistics_of_a_group_norm_belong_together() -> None:
    x = torch.randn(2, 4, 8, 8) + 1
    args = (x, torch.rand(4), torch.rand(4), 2, 4, 64, 2, 1e-5)
    func = torch.ops.aten.native_group_norm.default
    output, found, inverse = result = func(*args)
    before = output.clone()
    move_statistics(func, args, result, 1, 1000.0)
    assert not torch.equal(output, before)
    spread = [each.repeat_interleave(2, dim=1).view(2, 4, 1, 1) for each in (found, inverse)]
    again = (x - spread[0]) * spread[1] * args[1].view(1, -1, 1, 1) + args[2].view(1, -1, 1, 1)
    assert torch.allclose(output, again, atol=1e-5)
