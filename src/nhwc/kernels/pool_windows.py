"""The windows of a pooling, per dimension, and the array of them that the native library reads (pool_windows.h).

A window is a range of inputs and a divisor. That of several dimensions is the product of theirs, ranges and divisors
alike, which holds for every average pooling that torch has.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

#: An array of int64 for the library.
Table = Any

_NONE = ((0, 1, 1),)


@dataclass(frozen=True)
class Windows:
    """shape: the outputs per spatial dimension. table: what the library reads."""

    shape: tuple[int, ...]
    table: Table


@lru_cache(maxsize=256)
def adaptive(sizes: tuple[int, ...], outputs: tuple[int, ...]) -> Windows:
    """As many windows as asked for over inputs of these sizes (two or three spatial dimensions, all positive)."""
    dimensions = []
    for size, count in zip(sizes, outputs, strict=True):
        ranges = [(each * size // count, -((each + 1) * size // -count)) for each in range(count)]
        dimensions.append([(start, end, end - start) for start, end in ranges])
    return Windows(outputs, _table(sizes, dimensions))


@lru_cache(maxsize=256)
def regular(
    sizes: tuple[int, ...],
    kernel_size: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Windows | None:
    """The windows of avg_pool2d and avg_pool3d; None for arguments that torch refuses."""
    if not all(len(each) == len(sizes) for each in (kernel_size, stride, padding)) or divisor_override == 0:
        return None
    dimensions: list[list[tuple[int, int, int]]] = []
    for size, kernel, step, pad in zip(sizes, kernel_size, stride, padding, strict=True):
        count = _count(size, kernel, step, pad, ceil_mode)
        if count < 1 or size < kernel:
            return None
        dimension = [_window(size, each * step - pad, kernel, pad, count_include_pad) for each in range(count)]
        if any(start >= end for start, end, _ in dimension):
            return None
        if divisor_override is not None:
            dimension = [(start, end, 1 if dimensions else divisor_override) for start, end, _ in dimension]
        dimensions.append(dimension)
    return Windows(tuple(map(len, dimensions)), _table(sizes, dimensions))


def _count(size: int, kernel: int, step: int, pad: int, ceil_mode: bool) -> int:
    """How many windows there are; 0 for arguments that torch refuses."""
    if kernel < 1 or step < 1 or not 0 <= pad <= kernel // 2:
        return 0
    count = (size + 2 * pad - kernel + (step - 1 if ceil_mode else 0)) // step + 1
    # with ceil_mode the last window must begin within the input or its left padding
    return count - 1 if ceil_mode and (count - 1) * step >= size + pad else count


def _window(size: int, start: int, kernel: int, pad: int, count_include_pad: bool) -> tuple[int, int, int]:
    end = min(start + kernel, size + pad)
    padded = end - start
    start, end = max(start, 0), min(end, size)
    return start, end, padded if count_include_pad else end - start


def _table(sizes: Sequence[int], dimensions: Sequence[Sequence[tuple[int, int, int]]]) -> Table:
    """Depth, height, width, with a depth of one for two dimensions: sizes, then starts, ends, divisors, and per input
    the first and last (exclusive) output that covers it."""
    missing = 3 - len(sizes)
    numbers: list[int] = []
    for size, dimension in zip((1,) * missing + tuple(sizes), (_NONE,) * missing + tuple(dimensions), strict=True):
        numbers += [size, len(dimension)]
        for part in zip(*dimension, strict=True):
            numbers += part
        numbers += _covering(size, dimension)
    return (ctypes.c_int64 * len(numbers))(*numbers)


def _covering(size: int, dimension: Sequence[tuple[int, int, int]]) -> list[int]:
    first, last = [0] * size, [0] * size
    for output, (start, end, _) in enumerate(dimension):
        for each in range(start, end):
            if last[each] == 0:
                first[each] = output
            last[each] = output + 1
    return first + last
