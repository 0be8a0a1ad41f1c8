"""Convolutions at sizes at which backends are chosen as in real models; a tiny one gets another backend."""

from __future__ import annotations

from torch import nn

from nhwc.ops.case import Case
from nhwc.ops.samples.registry import Draw, Shape, sample

_CONVOLUTIONS: dict[int, type[nn.Conv2d] | type[nn.Conv3d]] = {2: nn.Conv2d, 3: nn.Conv3d}
_TRANSPOSED: dict[int, type[nn.ConvTranspose2d] | type[nn.ConvTranspose3d]] = {
    2: nn.ConvTranspose2d,
    3: nn.ConvTranspose3d,
}


@sample("Conv, 3 wide", "module")
def conv(draw: Draw, shape: Shape) -> Case:
    return draw.module(_CONVOLUTIONS[len(shape) - 2](shape[1], 32, 3, padding=1), draw.normal(*shape))


@sample("Conv, 1 wide", "module")
def pointwise(draw: Draw, shape: Shape) -> Case:
    return draw.module(_CONVOLUTIONS[len(shape) - 2](shape[1], 32, 1), draw.normal(*shape))


@sample("Conv, depthwise", "module")
def depthwise(draw: Draw, shape: Shape) -> Case:
    made = _CONVOLUTIONS[len(shape) - 2](shape[1], shape[1], 3, padding=1, groups=shape[1])
    return draw.module(made, draw.normal(*shape))


@sample("Conv, stride 2", "module")
def strided(draw: Draw, shape: Shape) -> Case:
    return draw.module(_CONVOLUTIONS[len(shape) - 2](shape[1], 32, 3, stride=2, padding=1), draw.normal(*shape))


@sample("Conv, dilation 2", "module")
def dilated(draw: Draw, shape: Shape) -> Case:
    return draw.module(_CONVOLUTIONS[len(shape) - 2](shape[1], 32, 3, padding=2, dilation=2), draw.normal(*shape))


@sample("ConvTranspose, 2 wide, stride 2", "module")
def transposed(draw: Draw, shape: Shape) -> Case:
    return draw.module(_TRANSPOSED[len(shape) - 2](shape[1], 16, 2, stride=2), draw.normal(*shape))
