"""Adaptive and fractional maximum pooling in 2-D and 3-D, with indices, straight on channels-last rows.

torch's kernels copy and answer contiguous, except adaptive_max_pool2d. Values, indices, ties and NaN are torch's own:
the first of equal values wins, and the last NaN.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import torch

from nhwc.kernels import native, pool_windows
from nhwc.kernels.dispatcher import is_plain
from nhwc.kernels.layouts import as_contiguous, empty_channels_last, loops_serve
from nhwc.kernels.pool_places import LARGEST_SAMPLE, scattered
from nhwc.kernels.registry import kernel

_LOST = "torch's own kernels run, which lose the format, except adaptive_max_pool2d"
ADAPTIVE_MAX_POOL = kernel(
    "adaptive_max_pool", "2-D and 3-D adaptive maximum pooling, forward and backward", native=_LOST, native_only=("*",)
)
FRACTIONAL_MAX_POOL = kernel(
    "fractional_max_pool",
    "2-D and 3-D fractional maximum pooling, forward and backward",
    native=_LOST,
    native_only=("*",),
)

_maximum = native.Function("pool_maximum", "ipppp" + "ll")
_fractional = native.Function("pool_fractional", "ipppppp" + "lll")


@ADAPTIVE_MAX_POOL.replaces("aten::adaptive_max_pool2d")
def adaptive_max_pool2d(input: torch.Tensor, output_size: Sequence[int]) -> Any:  # noqa: A002 torch's name
    return _adaptive(input, output_size, 4)


@ADAPTIVE_MAX_POOL.replaces("aten::adaptive_max_pool3d")
def adaptive_max_pool3d(input: torch.Tensor, output_size: Sequence[int]) -> Any:  # noqa: A002
    return _adaptive(input, output_size, 5)


@ADAPTIVE_MAX_POOL.replaces("aten::adaptive_max_pool2d_backward")
def adaptive_max_pool2d_backward(grad_output: torch.Tensor, input: torch.Tensor, indices: torch.Tensor) -> Any:  # noqa: A002
    return _backward(grad_output, input, indices, 4)


@ADAPTIVE_MAX_POOL.replaces("aten::adaptive_max_pool3d_backward")
def adaptive_max_pool3d_backward(grad_output: torch.Tensor, input: torch.Tensor, indices: torch.Tensor) -> Any:  # noqa: A002
    return _backward(grad_output, input, indices, 5)


@FRACTIONAL_MAX_POOL.replaces("aten::fractional_max_pool2d")
def fractional_max_pool2d(
    input: torch.Tensor,  # noqa: A002
    kernel_size: Sequence[int],
    output_size: Sequence[int],
    random_samples: torch.Tensor,
) -> Any:
    return _fractional_max(input, kernel_size, output_size, random_samples, 4)


@FRACTIONAL_MAX_POOL.replaces("aten::fractional_max_pool3d")
def fractional_max_pool3d(
    input: torch.Tensor,  # noqa: A002
    kernel_size: Sequence[int],
    output_size: Sequence[int],
    random_samples: torch.Tensor,
) -> Any:
    return _fractional_max(input, kernel_size, output_size, random_samples, 5)


@FRACTIONAL_MAX_POOL.replaces("aten::fractional_max_pool2d_backward")
def fractional_max_pool2d_backward(
    grad_output: torch.Tensor,
    input: torch.Tensor,  # noqa: A002
    kernel_size: Sequence[int],  # noqa: ARG001 torch does not read it either
    output_size: Sequence[int],
    indices: torch.Tensor,
) -> Any:
    return _backward(grad_output, input, indices, 4) if _ends_in(grad_output, output_size) else NotImplemented


@FRACTIONAL_MAX_POOL.replaces("aten::fractional_max_pool3d_backward")
def fractional_max_pool3d_backward(
    grad_output: torch.Tensor,
    input: torch.Tensor,  # noqa: A002
    kernel_size: Sequence[int],  # noqa: ARG001
    output_size: Sequence[int],
    indices: torch.Tensor,
) -> Any:
    return _backward(grad_output, input, indices, 5) if _ends_in(grad_output, output_size) else NotImplemented


def _adaptive(input: torch.Tensor, output_size: Sequence[int], rank: int) -> Any:  # noqa: A002
    if not _serves(input, rank) or len(output_size) != rank - 2 or any(each < 1 for each in output_size):
        return NotImplemented
    windows = pool_windows.adaptive(tuple(input.shape[2:]), tuple(output_size))
    samples, channels = input.shape[:2]
    result = empty_channels_last((samples, channels, *windows.shape), input)
    indices = empty_channels_last(result.shape, input, torch.int64)
    _maximum(native.dtype_code(input.dtype), input, result, indices, windows.table, samples, channels)
    # torch's 3-D backward, which may be the one that runs, reads them as contiguous
    return result, indices if rank == 4 else as_contiguous(indices)


def _fractional_max(
    input: torch.Tensor,  # noqa: A002
    kernel_size: Sequence[int],
    output_size: Sequence[int],
    random_samples: torch.Tensor,
    rank: int,
) -> Any:
    spatial = rank - 2
    if not _serves(input, rank) or not len(kernel_size) == len(output_size) == spatial:
        return NotImplemented
    samples, channels = input.shape[:2]
    if not _fits(random_samples, input, (samples, channels, spatial)) or not random_samples.is_contiguous():
        return NotImplemented
    axes = list(zip(input.shape[2:], output_size, kernel_size, _ORDER[rank], strict=True))
    margin = rank - 4  # in 3-D torch refuses windows that fill the input exactly
    if any(window < 1 or out < 1 or out + window - 1 + margin > size for size, out, window, _ in axes):
        return NotImplemented
    result = empty_channels_last((samples, channels, *output_size), input)
    indices = empty_channels_last(result.shape, input, torch.int64)
    numbers = [number for axis in [(1, 1, 1, 0)] * (3 - spatial) + axes for number in axis]
    outside = (ctypes.c_int64 * 1)()
    table = (ctypes.c_int64 * len(numbers))(*numbers)
    operands = input, random_samples, result, indices, outside, table
    _fractional(native.dtype_code(input.dtype), *operands, samples, channels, spatial)
    # contiguous, since torch's backward reads them so, and it may be the one that runs
    return NotImplemented if outside[0] else (result, as_contiguous(indices))


#: Which of a channel's random numbers places the windows of each spatial dimension: torch counts from the width in 2-D.
_ORDER = {4: (1, 0), 5: (0, 1, 2)}


def _backward(grad_output: torch.Tensor, input: torch.Tensor, indices: torch.Tensor, rank: int) -> Any:  # noqa: A002
    if not _serves(input, rank) or not is_plain(indices) or indices.dtype != torch.int64:
        return NotImplemented
    if grad_output.shape != indices.shape or grad_output.dim() != rank or grad_output.numel() == 0:
        return NotImplemented
    if grad_output.shape[:2] != input.shape[:2] or not _fits(grad_output, input, grad_output.shape):
        return NotImplemented
    return scattered(grad_output, indices, tuple(input.shape[2:]), adds=True)


def _serves(input: torch.Tensor, rank: int) -> bool:  # noqa: A002
    return input.dim() == rank and loops_serve(input) and math.prod(input.shape[1:]) < LARGEST_SAMPLE


def _fits(tensor: torch.Tensor, input: torch.Tensor, shape: Sequence[int]) -> bool:  # noqa: A002
    alike = tensor.dtype == input.dtype and tensor.device == input.device
    return is_plain(tensor) and alike and tensor.shape == tuple(shape)


def _ends_in(grad_output: torch.Tensor, output_size: Sequence[int]) -> bool:
    return tuple(grad_output.shape[2:]) == tuple(output_size)
