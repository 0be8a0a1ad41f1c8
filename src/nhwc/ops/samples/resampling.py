"""Resizing, warping and padding."""

from __future__ import annotations

import torch
from torch.nn import functional

from nhwc.ops.case import Case
from nhwc.ops.samples.registry import Draw, Shape, sample


@sample("interpolate to twice the size, nearest", "module")
def nearest(draw: Draw, shape: Shape) -> Case:
    return Case(functional.interpolate, (draw.normal(*shape),), {"scale_factor": 2, "mode": "nearest"})


@sample("interpolate to twice the size, linear", "module")
def linear(draw: Draw, shape: Shape) -> Case:
    mode = "bilinear" if len(shape) == 4 else "trilinear"
    return Case(functional.interpolate, (draw.normal(*shape),), {"scale_factor": 2, "mode": mode})


@sample("interpolate to twice the size, bicubic", "module", dims=(2,))
def bicubic(draw: Draw, shape: Shape) -> Case:
    return Case(functional.interpolate, (draw.normal(*shape),), {"scale_factor": 2, "mode": "bicubic"})


@sample("interpolate, bilinear with antialias", "module", dims=(2,))
def antialiased(draw: Draw, shape: Shape) -> Case:
    options = {"size": (8, 8), "mode": "bilinear", "antialias": True}
    return Case(functional.interpolate, (draw.normal(*shape),), options)


@sample("grid_sample, linear", "module")
def grid_sample(draw: Draw, shape: Shape) -> Case:
    grid = draw.uniform(-1.1, 1.1, shape[0], *shape[2:], len(shape) - 2)

    def run(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        # a grid ends in its coordinates: its own format is contiguous, whatever the pictures have
        return functional.grid_sample(x, places.reshape(x.shape[0], *x.shape[2:], -1), align_corners=False)

    return Case(run, (draw.normal(*shape), grid.detach().flatten(1).requires_grad_()))


def _pad(mode: str, draw: Draw, shape: Shape) -> Case:
    widths = (1,) * (2 * (len(shape) - 2))
    return Case(functional.pad, (draw.normal(*shape), widths), {"mode": mode})


@sample("pad, zeros", "module")
def pad_zeros(draw: Draw, shape: Shape) -> Case:
    return _pad("constant", draw, shape)


@sample("pad, reflect", "module")
def pad_reflect(draw: Draw, shape: Shape) -> Case:
    return _pad("reflect", draw, shape)


@sample("pad, replicate", "module")
def pad_replicate(draw: Draw, shape: Shape) -> Case:
    return _pad("replicate", draw, shape)


@sample("pad, circular", "module")
def pad_circular(draw: Draw, shape: Shape) -> Case:
    return _pad("circular", draw, shape)
