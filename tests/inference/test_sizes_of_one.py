"""Dimensions of size one, whose strides mean nothing: what works along them, or beside them, takes the right one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from tests.inference.engines import assert_right, kinds_of


class _Of(nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.first, self.function = nn.Conv2d(3, 16, 3), function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self.first(x))


@pytest.mark.parametrize("join", [1, 2])
@pytest.mark.parametrize(("size", "axis"), [((6, 3), 3), ((3, 6), 2), ((3, 3), 2), ((3, 3), 1)])
def test_softmax_into_a_slice(size: tuple[int, int], axis: int, join: int) -> None:
    assert_right(_Of(lambda x: torch.cat([x.softmax(axis), x], join)).eval(), torch.randn(2, 3, *size))


def test_softmax_along_rows_beside_a_single_channel() -> None:
    model = _Of(lambda x: torch.cat([x[:, :1].contiguous().softmax(3), x[:, :1]], 2)).eval()
    assert kinds_of(model, torch.randn(2, 3, 7, 8))["Softmax"] == 1
    assert_right(model, torch.randn(2, 3, 7, 8))


class _Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 1, 3), nn.LayerNorm(5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        return torch.cat([self.norm(y), y], 2)


def test_layer_norm_into_a_slice() -> None:
    assert_right(_Normed().eval(), torch.randn(2, 3, 6, 7))


@pytest.mark.parametrize("shape", [(1, 8, 4, 4, 6), (2, 1, 4, 2, 6)])
@pytest.mark.parametrize("shuffled", [nn.PixelShuffle(2), nn.PixelUnshuffle(2)], ids=str)
def test_pixels_of_volumes_are_shuffled(shape: tuple[int, ...], shuffled: nn.Module) -> None:
    model = nn.Sequential(nn.Conv3d(shape[1], shape[1], 1), shuffled)
    assert_right(model.eval(), torch.randn(shape))
