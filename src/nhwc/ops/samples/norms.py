"""Normalisations, training and in evaluation, and over the channels of a picture."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from nhwc.ops.case import Case
from nhwc.ops.samples.registry import Draw, Shape, sample


def _batch_norm(shape: Shape) -> nn.Module:
    return nn.BatchNorm2d(shape[1]) if len(shape) == 4 else nn.BatchNorm3d(shape[1])


@sample("BatchNorm, training", "module")
def batch_norm(draw: Draw, shape: Shape) -> Case:
    return draw.module(_batch_norm(shape), draw.normal(*shape))


@sample("BatchNorm, evaluation", "module")
def batch_norm_in_evaluation(draw: Draw, shape: Shape) -> Case:
    return draw.module(_batch_norm(shape), draw.normal(*shape), training=False)


@sample("InstanceNorm", "module")
def instance_norm(draw: Draw, shape: Shape) -> Case:
    made = nn.InstanceNorm2d(shape[1]) if len(shape) == 4 else nn.InstanceNorm3d(shape[1])
    return draw.module(made, draw.normal(*shape))


@sample("InstanceNorm, affine", "module")
def affine_instance_norm(draw: Draw, shape: Shape) -> Case:
    kind = nn.InstanceNorm2d if len(shape) == 4 else nn.InstanceNorm3d
    return draw.module(kind(shape[1], affine=True), draw.normal(*shape))


@sample("GroupNorm", "module")
def group_norm(draw: Draw, shape: Shape) -> Case:
    groups = next(count for count in (4, 2, 1) if shape[1] % count == 0)
    return draw.module(nn.GroupNorm(groups, shape[1]), draw.normal(*shape))


@sample("LayerNorm over channels by permute", "idiom")
def layer_norm_by_permute(draw: Draw, shape: Shape) -> Case:
    last = (0, *range(2, len(shape)), 1)
    back = (0, len(shape) - 1, *range(1, len(shape) - 1))

    def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(x.permute(last), weight.shape, weight, bias).permute(back)

    return Case(run, (draw.normal(*shape), draw.normal(shape[1]), draw.normal(shape[1])))


@sample("LayerNorm over channels by mean and variance", "idiom")
def layer_norm_by_hand(draw: Draw, shape: Shape) -> Case:
    def run(x: torch.Tensor) -> torch.Tensor:
        mean = x.mean(1, keepdim=True)
        variance = (x - mean).pow(2).mean(1, keepdim=True)
        return (x - mean) / torch.sqrt(variance + 1e-6)

    return Case(run, (draw.normal(*shape),))


@sample("LocalResponseNorm", "module")
def local_response_norm(draw: Draw, shape: Shape) -> Case:
    return draw.module(nn.LocalResponseNorm(3), draw.normal(*shape))
