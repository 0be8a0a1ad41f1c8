"""Joining and cutting along channels: cat in one pass from channels-last, sliced and contiguous operands alike, and the
gradient of a slice laid out as the gradient that comes in.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import torch

from nhwc.kernels import native
from nhwc.kernels.dispatcher import is_plain
from nhwc.kernels.layouts import (
    empty_channels_last,
    from_rows,
    is_channels_last,
    pixel_step,
    row_dim,
    rows_of,
    strides_are_contiguous,
    to_rows,
)
from nhwc.kernels.registry import kernel

CAT = kernel("cat", "cat of channels-last tensors, their channel slices, and contiguous tensors among them")
SLICE = kernel("slice_backward", "the gradient of slices, chunks and splits")

_RANKS = (4, 5)
_copy_rows = native.Function("copy_rows", "iplplll")
_join_channels = native.Function("join_channels", "ippplpl")
#: Below this many elements torch's own cat runs where it keeps the format: coming here costs more than ours saves.
_WORTHWHILE = 1 << 20


@CAT.replaces("aten::cat")
def cat(tensors: Sequence[torch.Tensor], dim: int = 0) -> Any:
    first = tensors[0] if tensors else None
    if first is None or first.dim() not in _RANKS:
        return NotImplemented
    if first.numel() * len(tensors) < _WORTHWHILE and all(map(_lies_in_rows, tensors)):
        return NotImplemented
    if not _joins(tensors, dim):
        return NotImplemented
    dim %= first.dim()
    if dim != 1 and all(map(is_channels_last, tensors)):
        return from_rows(torch.cat([rows_of(each) for each in tensors], row_dim(first, dim)))
    shape = list(first.shape)
    shape[dim] = sum(each.shape[dim] for each in tensors)
    result = empty_channels_last(shape, first)
    steps = [pixel_step(each) for each in tensors]
    if dim == 1 and native.is_available() and first.element_size() <= 8 and None not in steps:
        pointers = (ctypes.c_void_p * len(tensors))(*(each.data_ptr() for each in tensors))
        widths = _numbers([each.shape[1] for each in tensors])
        rows = result.numel() // result.shape[1]
        _join_channels(first.element_size(), pointers, _numbers(steps), widths, len(tensors), result, rows)
        return result
    start = 0
    for each in tensors:
        place_rows(each, result, dim, start)
        start += each.shape[dim]
    return result


def _lies_in_rows(tensor: torch.Tensor) -> bool:
    """Whether torch takes ``tensor`` for channels last: all channels of an image, or some of them.

    Of one sample, too, it asks for a batch stride that goes past the sample.
    """
    if tensor.dim() not in _RANKS or tensor.shape[1] < 2 or pixel_step(tensor) is None:
        return False
    return tensor.stride(0) >= tensor.stride(2) * tensor.shape[2]


def _numbers(values: Sequence[Any]) -> Any:
    return (ctypes.c_int64 * len(values))(*values)


def _joins(tensors: Sequence[torch.Tensor], dim: int) -> bool:
    """Whether the result belongs in channels last: one operand is, none is of a layout, shape or dtype of its own."""
    first = tensors[0]
    rank, dtype = first.dim(), first.dtype
    if not -rank <= dim < rank:
        return False
    dim %= rank
    before, after = first.shape[:dim], first.shape[dim + 1 :]
    found = False
    for each in tensors:
        if each.dim() != rank or each.dtype != dtype or not is_plain(each) or not each.numel():
            return False
        shape = each.shape
        if shape[:dim] != before or shape[dim + 1 :] != after:
            return False
        last = shape[1] > 1 and pixel_step(each) is not None
        if not last and not strides_are_contiguous(each) and not is_channels_last(each):
            return False
        found = found or last
    return found


def place_rows(source: torch.Tensor, result: torch.Tensor, dim: int, start: int) -> None:
    """Copy ``source`` into the channels-last ``result`` from ``start`` along ``dim`` on, whatever its own layout."""
    target = result.narrow(dim, start, source.shape[dim])
    pixels = math.prod(source.shape[2:])
    step = pixel_step(source)
    own = dim == 1 and native.is_available() and source.element_size() <= 8 and not source.is_conj()
    if own and step is not None:
        rows = source.shape[0] * pixels
        _copy_rows(source.element_size(), source, step, target, result.shape[1], rows, source.shape[1])
    elif own and strides_are_contiguous(source):
        samples, channels = source.shape[:2]
        to_rows(source.element_size(), source, target, samples, channels, pixels, result.shape[1])
    else:
        target.copy_(source)


@SLICE.replaces("aten::slice_backward")
def slice_backward(
    grad_output: torch.Tensor, input_sizes: Sequence[int], dim: int, start: int, end: int, step: int
) -> Any:
    if not (is_plain(grad_output) and len(input_sizes) in {4, 5} and 0 not in input_sizes and grad_output.numel()):
        return NotImplemented
    if grad_output.shape[1] < 2 or not (is_channels_last(grad_output) or pixel_step(grad_output) is not None):
        return NotImplemented
    result = empty_channels_last(input_sizes, grad_output)
    dim %= len(input_sizes)
    size = input_sizes[dim]
    first, last = _within(start, size), min(_within(end, size), size)
    if step != 1 or last - first != grad_output.shape[dim]:
        result.zero_()
        result.narrow(dim, first, last - first)[(slice(None),) * dim + (slice(None, None, step),)].copy_(grad_output)
        return result
    result.narrow(dim, 0, first).zero_()
    result.narrow(dim, last, size - last).zero_()
    place_rows(grad_output, result, dim, first)
    return result


def _within(index: int, size: int) -> int:
    return max(0, min(index + size if index < 0 else index, size))
