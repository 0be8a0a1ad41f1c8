"""Interpolation against torch: nearest bit by bit, linear in float64; sizes, scales, aligned corners, slices."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from inference.running import by_every_candidate, relative_error, request
from inference.steps.test_pooling import slice_of
from torch.nn import functional

import nhwc.inference.steps.resampling  # noqa: F401 registers
from nhwc.inference.native import Activation
from nhwc.inference.operations import Fused, Resample
from nhwc.inference.steps.registry import candidates

LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}


def resampled(operation: Resample, x: torch.Tensor, size: torch.Size, threads: int = 2) -> torch.Tensor:
    output, memory = slice_of(tuple(size))
    before = memory.clone()
    [result] = by_every_candidate(request(operation, (x,), output, threads=threads), output).values()
    assert torch.equal(memory[..., :2], before[..., :2])
    assert torch.equal(memory[..., -3:], before[..., -3:])
    return result


@pytest.mark.parametrize("seed", [*range(40), *[pytest.param(s, marks=pytest.mark.slow) for s in range(40, 200)]])
def test_random_sizes_and_scales(seed: int) -> None:
    draw = random.Random(seed)
    spatial = draw.choice([1, 2, 2, 2, 3])
    x, _ = slice_of((draw.randint(1, 3), draw.randint(1, 67), *[draw.randint(1, 15) for _ in range(spatial)]))
    is_linear, align = draw.random() < 0.6, draw.random() < 0.4
    arguments: dict[str, Any] = {"mode": LINEAR[spatial] if is_linear else "nearest"}
    if is_linear:
        arguments["align_corners"] = align
    scales: tuple[float | None, ...] = (None,) * spatial
    if draw.random() < 0.5:
        scales = tuple(draw.choice([2.0, 0.5, 1.0, 3.0, 1.7]) for _ in range(spatial))
        if any(int(size * (scale or 1)) == 0 for size, scale in zip(x.shape[2:], scales, strict=True)):
            scales = (2.0,) * spatial
        arguments["scale_factor"] = scales
    else:
        arguments["size"] = tuple(draw.randint(1, 33) for _ in range(spatial))
    exact = functional.interpolate(x.double() if is_linear else x, **arguments)
    operation = Resample("linear" if is_linear else "nearest", is_linear and align, scales)
    found = resampled(operation, x, exact.shape, draw.choice([1, 2, 5]))
    if is_linear:
        assert relative_error(found, exact) < 3e-7
    else:
        assert torch.equal(found, exact)


def test_large_sizes_nearest_as_float32_rounds() -> None:
    x, _ = slice_of((1, 3, 37, 1001))
    exact = functional.interpolate(x, size=(61, 2517), mode="nearest")
    assert torch.equal(resampled(Resample("nearest", False, (None, None)), x, exact.shape), exact)


def test_nan_stays() -> None:
    x, _ = slice_of((1, 20, 5, 5))
    x[0, 3, 2, 2] = torch.nan
    exact = functional.interpolate(x, size=(9, 9), mode="bilinear", align_corners=False)
    found = resampled(Resample("linear", False, (None, None)), x, exact.shape)
    assert torch.equal(found.isnan(), exact.isnan())


def test_no_picture_and_what_does_not_fit() -> None:
    operation = Resample("linear", False, (None, None))
    none = torch.empty(0, 4, 4, 3).permute(0, 3, 1, 2)
    more = torch.empty(0, 8, 8, 3).permute(0, 3, 1, 2)
    assert len(by_every_candidate(request(operation, (none,), more), more)) == 1
    x, output = torch.randn(2, 3, 4, 4), torch.empty(2, 3, 8, 8)
    assert not candidates(request(operation, (x,), output))
    rows = [each.contiguous(memory_format=torch.channels_last) for each in (x, output)]
    assert candidates(request(operation, rows[:1], rows[1]))
    assert not candidates(request(operation, rows[:1], rows[1], Fused(Activation.CLAMP)))
