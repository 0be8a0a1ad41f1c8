"""Operands of mixed formats: one of them is made contiguous inside, as coordinates and position tables are."""

from __future__ import annotations

import torch

from nhwc.ops.case import Case
from nhwc.ops.samples.registry import Draw, Shape, sample


def _grid(x: torch.Tensor) -> torch.Tensor:
    """Coordinates of every pixel, contiguous: (1, dims, *space)."""
    axes = [torch.arange(size, device=x.device, dtype=x.dtype) for size in x.shape[2:]]
    return torch.stack(torch.meshgrid(*axes, indexing="ij")).unsqueeze(0)


@sample("cat with contiguous coordinates", "idiom")
def cat_with_coordinates(draw: Draw, shape: Shape) -> Case:
    def run(x: torch.Tensor) -> torch.Tensor:
        grid = _grid(x)
        return torch.cat([x, grid.repeat(x.shape[0], *(1 for _ in x.shape[1:]))], 1)

    return Case(run, (draw.normal(*shape),))


@sample("cat of contiguous zeros first", "idiom")
def cat_with_zeros_first(draw: Draw, shape: Shape) -> Case:
    def run(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x.new_zeros(x.shape), x], 1)

    return Case(run, (draw.normal(*shape),))


@sample("feature plus contiguous operand", "idiom")
def feature_first(draw: Draw, shape: Shape) -> Case:
    def run(x: torch.Tensor) -> torch.Tensor:
        return x + x.new_ones(x.shape)

    return Case(run, (draw.normal(*shape),))


@sample("contiguous operand plus feature", "idiom")
def feature_second(draw: Draw, shape: Shape) -> Case:
    def run(x: torch.Tensor) -> torch.Tensor:
        return x.new_ones(x.shape) + x

    return Case(run, (draw.normal(*shape),))


@sample("masked by a contiguous mask", "idiom")
def masked(draw: Draw, shape: Shape) -> Case:
    def run(x: torch.Tensor) -> torch.Tensor:
        return torch.where(torch.ones(x.shape, dtype=torch.bool, device=x.device), x, 0.0)

    return Case(run, (draw.normal(*shape),))
