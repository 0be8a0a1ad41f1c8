"""Pooling over windows by ``engine/pool.cpp``, adaptive pooling and means by ``engine/pool_adaptive.cpp``."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from math import prod

from nhwc.inference.native import Rows, Step
from nhwc.inference.operations import AdaptivePool, Mean, Pool
from nhwc.inference.steps.channels import pair
from nhwc.inference.steps.registry import Candidate, Request, algorithm

#: Rows of one window that the kernel keeps track of, and floats that it keeps of one column of inputs.
_MOST_ROWS = 64
_COLUMN_FLOATS = 64


class Windows(ctypes.Structure):
    """Pool of pool.cpp. Three spatial numbers each: depth, height, width."""

    _fields_ = [
        ("x", Rows),
        ("y", Rows),
        *[(name, ctypes.c_int64) for name in ("is_maximum", "count_include_pad", "divisor")],
        *[(name, ctypes.c_int64 * 3) for name in ("kernel", "stride", "dilation", "padding")],
    ]


class Cells(ctypes.Structure):
    """AdaptivePool of pool_adaptive.cpp."""

    _fields_ = [("x", Rows), ("y", Rows), ("is_maximum", ctypes.c_int64)]


def _three(values: Sequence[int], missing: int) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * 3)(*[missing] * (3 - len(values)), *values)


@algorithm(Pool)
def windowed(request: Request) -> Iterator[Candidate]:
    """One to three spatial dimensions in channels last; windows of up to 64 rows. No epilogues."""
    pool, [x], y = request.operation, request.inputs, request.output
    assert isinstance(pool, Pool)
    rows = pair(x, y)
    if rows is None or request.has_epilogue or len(x.shape) != len(y.shape) or len(x.shape) != len(pool.kernel) + 2:
        return
    if prod(pool.kernel[:-1]) > _MOST_ROWS or not all(x.shape[2:]):
        return
    sizes = [_three(pool.kernel, 1), _three(pool.stride, 1), _three(pool.dilation, 1), _three(pool.padding, 0)]
    counts = int(pool.kind == "maximum"), int(pool.count_include_pad), pool.divisor or 0
    scratch = rows[0].w * _COLUMN_FLOATS * 4 * request.threads
    yield Candidate("pool", lambda: Step("pool", Windows(*rows, *counts, *sizes), "pool", scratch))


@algorithm(AdaptivePool, Mean)
def cells(request: Request) -> Iterator[Candidate]:
    """Over an even grid of cells, of one for a mean; the result may be (N, C) then. No epilogues."""
    [x], y = request.inputs, request.output
    rows = pair(x, y)
    if rows is None or request.has_epilogue or not all(x.shape[2:]) or len(y.shape) not in {2, len(x.shape)}:
        return
    is_mean = isinstance(request.operation, Mean)
    if is_mean and prod(y.shape[2:]) != 1:
        return
    is_maximum = isinstance(request.operation, AdaptivePool) and request.operation.kind == "maximum"
    label = "mean" if is_mean else "pool_adaptive"
    yield Candidate(label, lambda: Step("pool_adaptive", Cells(*rows, int(is_maximum)), label))
