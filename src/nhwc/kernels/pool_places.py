"""Pixels moved to and from the places that a maximum pooling's indices name, channel by channel, in channels last."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import torch

from nhwc.kernels import native
from nhwc.kernels.layouts import as_channels_last, empty_channels_last

#: Elements of one sample that the library's 32-bit places can name.
LARGEST_SAMPLE = 2**31

_scatter = native.Function("pool_scatter", "iipppp" + "llll")
_gather = native.Function("pool_gather", "ipppp" + "llll")


def scattered(values: torch.Tensor, places: torch.Tensor, sizes: tuple[int, ...], adds: bool) -> Any:
    """A channels-last tensor of spatial ``sizes`` that holds every value at its place, zeros elsewhere.

    values: (N, C, ...) of a dtype that the library knows, not empty; places: int64 of the same shape, row-major within
    ``sizes``. adds: values of one place are added up, else the last one stays. NotImplemented for a place outside.
    """
    values, places = as_channels_last(values), as_channels_last(places)
    result = empty_channels_last((*values.shape[:2], *sizes), values)
    outside = (ctypes.c_int64 * 1)()
    code = native.dtype_code(values.dtype)
    _scatter(code, int(adds), values, places, result, outside, *_extents(places, sizes))
    return NotImplemented if outside[0] else result


def gathered(values: torch.Tensor, places: torch.Tensor) -> Any:
    """What ``values`` (N, C, ...) holds at ``places``, channels last; NotImplemented for a place outside."""
    values, places = as_channels_last(values), as_channels_last(places)
    result = empty_channels_last(places.shape, values)
    outside = (ctypes.c_int64 * 1)()
    extents = _extents(places, tuple(values.shape[2:]))
    _gather(native.dtype_code(values.dtype), values, places, result, outside, *extents)
    return NotImplemented if outside[0] else result


def _extents(places: torch.Tensor, sizes: tuple[int, ...]) -> tuple[int, int, int, int]:
    samples, channels = places.shape[:2]
    return samples, math.prod(places.shape[2:]), math.prod(sizes), channels
