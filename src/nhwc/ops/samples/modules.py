"""Modules that are more than one operator of torch's database."""

from __future__ import annotations

import torch
from torch import nn

from nhwc.ops.case import Case
from nhwc.ops.samples.registry import Draw, Shape, sample

_ACTIVATIONS: tuple[type[nn.Module], ...] = (
    nn.ReLU,
    nn.ReLU6,
    nn.LeakyReLU,
    nn.ELU,
    nn.SELU,
    nn.GELU,
    nn.SiLU,
    nn.Mish,
    nn.Hardswish,
    nn.Hardsigmoid,
    nn.Hardtanh,
    nn.Sigmoid,
    nn.Tanh,
    nn.Softplus,
)


def _register(kind: type[nn.Module]) -> None:
    @sample(kind.__name__, "module")
    def activation(draw: Draw, shape: Shape) -> Case:
        return draw.module(kind(), draw.normal(*shape))


for _kind in _ACTIVATIONS:
    _register(_kind)


@sample("PReLU, a slope per channel", "module")
def prelu(draw: Draw, shape: Shape) -> Case:
    return draw.module(nn.PReLU(shape[1]), draw.normal(*shape))


@sample("GLU over channels", "module")
def glu(draw: Draw, shape: Shape) -> Case:
    return draw.module(nn.GLU(1), draw.normal(*shape))


@sample("Dropout, evaluation", "module")
def dropout(draw: Draw, shape: Shape) -> Case:
    return draw.module(nn.Dropout(0.5), draw.normal(*shape), training=False)


@sample("Conv, BatchNorm, ReLU", "module")
def block(draw: Draw, shape: Shape) -> Case:
    pair = (nn.Conv2d, nn.BatchNorm2d) if len(shape) == 4 else (nn.Conv3d, nn.BatchNorm3d)
    made = nn.Sequential(pair[0](shape[1], 16, 3, padding=1, bias=False), pair[1](16), nn.ReLU())
    return draw.module(made, draw.normal(*shape))


@sample("scale per channel (layer scale)", "idiom")
def layer_scale(draw: Draw, shape: Shape) -> Case:
    def run(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return x * scale.view(1, -1, *(1 for _ in x.shape[2:]))

    return Case(run, (draw.normal(*shape), draw.normal(shape[1])))
