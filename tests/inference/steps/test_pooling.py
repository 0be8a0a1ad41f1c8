"""Pooling against torch in float64: random windows, slices, ceil_mode, NaN, adaptive grids, means."""

from __future__ import annotations

import random
from typing import Any, Literal

import pytest
import torch
from inference.running import by_every_candidate, relative_error, request
from torch.nn import functional

import nhwc.inference.steps.pooling  # noqa: F401 registers
from nhwc.inference.native import Activation
from nhwc.inference.operations import AdaptivePool, Fused, Mean, Operation, Pool
from nhwc.inference.steps.registry import candidates

POOLS: dict[tuple[str, int], Any] = {
    ("maximum", 1): functional.max_pool1d,
    ("maximum", 2): functional.max_pool2d,
    ("maximum", 3): functional.max_pool3d,
    ("average", 1): functional.avg_pool1d,
    ("average", 2): functional.avg_pool2d,
    ("average", 3): functional.avg_pool3d,
}
ADAPTIVE: dict[tuple[str, int], Any] = {
    ("maximum", 2): functional.adaptive_max_pool2d,
    ("maximum", 3): functional.adaptive_max_pool3d,
    ("average", 2): functional.adaptive_avg_pool2d,
    ("average", 3): functional.adaptive_avg_pool3d,
}
KINDS: tuple[Literal["maximum", "average"], ...] = ("maximum", "average")


def slice_of(shape: tuple[int, ...], before: int = 2, after: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """Channels-last rows that are some channels of wider ones, and the memory that they lie in."""
    memory = torch.randn(shape[0], *shape[2:], before + shape[1] + after)
    return memory[..., before : before + shape[1]].movedim(-1, 1), memory


def pooled(operation: Operation, x: torch.Tensor, exact: torch.Tensor, threads: int = 2) -> torch.Tensor:
    """The result in a slice, beside which nothing may change."""
    output, memory = slice_of(tuple(exact.shape))
    before = memory.clone()
    [result] = by_every_candidate(request(operation, (x,), output, threads=threads), output).values()
    assert torch.equal(memory[..., :2], before[..., :2])
    assert torch.equal(memory[..., -3:], before[..., -3:])
    return result


def drawn(seed: int) -> tuple[Pool, torch.Tensor, torch.Tensor, int]:
    """A random pooling with its input and result."""
    draw = random.Random(seed)
    spatial, kind = draw.choice([1, 2, 2, 2, 3]), draw.choice(KINDS)
    common = draw.random() < 0.5
    kernel = tuple([draw.choice([2, 3])] * spatial if common else [draw.randint(1, 5) for _ in range(spatial)])
    stride = tuple([draw.choice([1, 2])] * spatial if common else [draw.randint(1, 4) for _ in range(spatial)])
    padding = tuple(draw.randint(0, size // 2) for size in kernel)
    dilation = tuple(draw.choice([1, 1, 2]) for _ in kernel) if kind == "maximum" else (1,) * spatial
    least = max(d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True))
    x, _ = slice_of((draw.randint(1, 3), draw.randint(1, 67), *[draw.randint(least, 20) for _ in kernel]))
    arguments: dict[str, Any] = {"ceil_mode": draw.random() < 0.5, "padding": padding}
    include, divisor = draw.random() < 0.5, draw.choice([None, None, 5]) if spatial > 1 else None
    if kind == "maximum":
        arguments["dilation"] = dilation
    else:
        arguments["count_include_pad"] = include
        if divisor is not None:
            arguments["divisor_override"] = divisor
    exact = POOLS[kind, spatial](x.double(), kernel, stride, **arguments)
    operation = Pool(kind, kernel, stride, padding, dilation, include, divisor if kind == "average" else None)
    return operation, x, exact, draw.choice([1, 2, 5])


@pytest.mark.parametrize("seed", [*range(40), *[pytest.param(s, marks=pytest.mark.slow) for s in range(40, 200)]])
def test_windows(seed: int) -> None:
    operation, x, exact, threads = drawn(seed)
    assert relative_error(pooled(operation, x, exact, threads), exact) < 3e-7


@pytest.mark.parametrize("c", [1, 8, 16, 20, 64, 200])
@pytest.mark.parametrize("kernel", [2, 3, 5])
def test_nan_and_infinities_as_torch_has_them(kernel: int, c: int) -> None:
    x, _ = slice_of((2, c, 11, 9))
    x[torch.rand(x.shape) < 0.03] = torch.nan
    x[torch.rand(x.shape) < 0.03] = torch.inf
    x[torch.rand(x.shape) < 0.2] = -torch.inf
    for kind in KINDS:
        exact = POOLS[kind, 2](x, kernel, 2, kernel // 2)
        found = pooled(Pool(kind, (kernel,) * 2, (2, 2), (kernel // 2,) * 2, (1, 1)), x, exact)
        assert torch.allclose(found, exact, rtol=1e-6, atol=1e-6, equal_nan=True)
        grid = ADAPTIVE[kind, 2](x, (3, 4))
        assert torch.allclose(pooled(AdaptivePool(kind), x, grid), grid, rtol=1e-6, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("seed", [*range(25), *[pytest.param(s, marks=pytest.mark.slow) for s in range(25, 100)]])
def test_adaptive_grids(seed: int) -> None:
    draw = random.Random(seed)
    spatial, kind = draw.choice([2, 2, 3]), draw.choice(KINDS)
    x, _ = slice_of(
        (draw.randint(1, 3), draw.randint(1, 67), *[draw.randint(1, 33 if spatial == 2 else 9) for _ in range(spatial)])
    )
    size = tuple(draw.choice([1, 1, 2, 7, draw.randint(1, 9)]) for _ in range(spatial))
    exact = ADAPTIVE[kind, spatial](x.double(), size)
    assert relative_error(pooled(AdaptivePool(kind), x, exact, draw.choice([1, 2, 5])), exact) < 2e-7


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize(
    "shape", [(1, 1280, 7, 7), (8, 64, 5, 3), (1, 3, 224, 225), (2, 33, 4, 6, 5), (2, 700, 49)], ids=str
)
def test_means_are_good_to_two_units(shape: tuple[int, ...], threads: int) -> None:
    x, _ = slice_of(shape)
    x += 10
    exact = x.double().flatten(2).mean(2)
    found = pooled(Mean(), x, exact, threads)
    assert ((found.double() - exact).abs() / exact.abs()).max().item() < 2.4e-7
    kept = pooled(Mean(), x, exact.view(*shape[:2], *[1] * (len(shape) - 2)), threads)
    assert torch.equal(kept.flatten(1), found)


def test_dense_rows_of_one_channel() -> None:
    x = torch.randn(2, 1, 9, 8)
    exact = functional.max_pool2d(x, 2)
    output = torch.empty_like(exact)
    asked = request(Pool("maximum", (2, 2), (2, 2), (0, 0), (1, 1)), (x,), output)
    assert torch.equal(by_every_candidate(asked, output)["pool"], exact)


def test_no_picture_at_all() -> None:
    x = torch.randn(0, 5, 5, 3).permute(0, 3, 1, 2)
    for operation, size in ((Pool("maximum", (3, 3), (1, 1), (1, 1), (1, 1)), 5), (AdaptivePool("average"), 2)):
        output = torch.empty(0, size, size, 3).permute(0, 3, 1, 2)
        assert len(by_every_candidate(request(operation, (x,), output), output)) == 1


def test_what_does_not_fit_is_refused() -> None:
    planes, output = torch.randn(2, 3, 6, 6), torch.empty(2, 3, 3, 3)
    rows = planes.contiguous(memory_format=torch.channels_last)
    by_two = output.contiguous(memory_format=torch.channels_last)
    pool = Pool("maximum", (2, 2), (2, 2), (0, 0), (1, 1))
    assert candidates(request(pool, (rows,), by_two))
    assert not candidates(request(pool, (planes,), by_two))
    assert not candidates(request(pool, (rows,), output))
    assert not candidates(request(pool, (rows,), by_two, Fused(Activation.CLAMP)))
    assert not candidates(request(Mean(), (rows,), by_two))
    assert not candidates(request(Pool("average", (65, 2), (2, 2), (32, 1), (1, 1)), (rows,), by_two))
