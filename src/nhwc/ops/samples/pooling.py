"""Pooling as models use it: fixed windows, global, adaptive, fractional, and unpooling."""

from __future__ import annotations

import torch
from torch.nn import functional

from nhwc.ops.case import Case
from nhwc.ops.samples.registry import Draw, Shape, sample


def _of(shape: Shape, plane: str) -> object:
    return getattr(functional, f"{plane}{len(shape) - 2}d")


@sample("max_pool, 3 wide, stride 2", "module")
def max_pool(draw: Draw, shape: Shape) -> Case:
    return Case(_of(shape, "max_pool"), (draw.normal(*shape), 3, 2, 1))  # type: ignore[arg-type]


@sample("avg_pool, 2 wide, stride 2", "module")
def avg_pool(draw: Draw, shape: Shape) -> Case:
    return Case(_of(shape, "avg_pool"), (draw.normal(*shape), 2, 2))  # type: ignore[arg-type]


@sample("adaptive_avg_pool to 4", "module")
def adaptive_avg_pool(draw: Draw, shape: Shape) -> Case:
    return Case(_of(shape, "adaptive_avg_pool"), (draw.normal(*shape), 4))  # type: ignore[arg-type]


@sample("adaptive_max_pool to 4", "module")
def adaptive_max_pool(draw: Draw, shape: Shape) -> Case:
    return Case(_of(shape, "adaptive_max_pool"), (draw.normal(*shape), 4))  # type: ignore[arg-type]


@sample("fractional_max_pool to 4", "module")
def fractional_max_pool(draw: Draw, shape: Shape) -> Case:
    places = draw.uniform(0.0, 1.0, shape[0], shape[1], len(shape) - 2, grad=False)
    pool = _of(shape, "fractional_max_pool")

    def run(x: torch.Tensor, samples: torch.Tensor) -> object:
        return pool(x, 2, output_size=4, _random_samples=samples)  # type: ignore[operator]

    return Case(run, (draw.normal(*shape), places))


@sample("max_pool and max_unpool", "idiom")
def max_unpool(draw: Draw, shape: Shape) -> Case:
    pool, unpool = _of(shape, "max_pool"), _of(shape, "max_unpool")

    def run(x: torch.Tensor) -> object:
        pooled, places = pool(x, 2, 2, return_indices=True)  # type: ignore[operator]
        return unpool(pooled, places, 2, 2, output_size=x.shape[2:])  # type: ignore[operator]

    return Case(run, (draw.normal(*shape),))


@sample("global average pooling, kept as 1x1", "idiom")
def global_average(draw: Draw, shape: Shape) -> Case:
    return Case(_of(shape, "adaptive_avg_pool"), (draw.normal(*shape), 1))  # type: ignore[arg-type]
