"""What a replacement asks of its operands, cheaply, and the tensors that it answers with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from nhwc.kernels import native
from nhwc.kernels.dispatcher import is_plain

#: (element bytes, source, target, samples, channels, pixels, elements between two pixels of the target).
to_rows = native.Function("to_rows", "ippllll")
_from_rows = native.Function("from_rows", "ipplll")

_FORMAT = {4: torch.channels_last, 5: torch.channels_last_3d}


def is_channels_last(tensor: Any) -> bool:
    """Whether torch takes ``tensor`` (4-D or 5-D, CPU, plain) for channels last: by canonical strides, not by luck.

    A tensor that is contiguous as well (C == 1, H == W == 1) counts by the strides that it has, as in torch.
    """
    rank = tensor.dim()
    if rank not in _FORMAT or tensor.device.type != "cpu" or not tensor.is_contiguous(memory_format=_FORMAT[rank]):
        return False
    return tensor.stride() == canonical_strides(tensor.shape) and not strides_are_contiguous(tensor)


def loops_serve(tensor: torch.Tensor) -> bool:
    """Whether the compiled loops take ``tensor``: a plain channels-last one, not empty, of a dtype that they know."""
    return (
        native.is_available()
        and is_plain(tensor)
        and is_channels_last(tensor)
        and tensor.numel() > 0
        and native.dtype_code(tensor.dtype) is not None
    )


def strides_are_contiguous(tensor: torch.Tensor) -> bool:
    """Whether the strides are the very ones of a fresh contiguous tensor; where both formats hold, they say which."""
    if not tensor.is_contiguous():
        return False
    step = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
        if stride != step:
            return False
        step *= max(size, 1)
    return True


def canonical_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """The channels-last strides of a 4-D or 5-D shape, in elements."""
    channels = shape[1]
    if len(shape) == 4:
        row = channels * shape[3]
        return (row * shape[2], 1, row, channels)
    row = channels * shape[4]
    plane = row * shape[3]
    return (plane * shape[2], 1, plane, row, channels)


def empty_channels_last(shape: Sequence[int], like: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A fresh tensor with canonical channels-last strides, on the device of ``like`` and of its dtype by default."""
    return torch.empty_strided(tuple(shape), canonical_strides(shape), dtype=dtype or like.dtype, device=like.device)


def as_channels_last(tensor: torch.Tensor) -> torch.Tensor:
    """``tensor`` (4-D or 5-D) with canonical channels-last strides: itself or a view where it lies so, else a copy."""
    if is_channels_last(tensor):
        return tensor
    if tensor.device.type == "cpu" and tensor.is_contiguous(memory_format=_FORMAT[tensor.dim()]):
        # the strides of sizes of 1 are all that differs
        return tensor.as_strided(tensor.shape, canonical_strides(tensor.shape))
    result = empty_channels_last(tensor.shape, tensor)
    if not transpose(tensor, result):
        result.copy_(tensor)
    return result


def rows_of(tensor: torch.Tensor) -> torch.Tensor:
    """The (N, ..., C) view of a channels-last tensor: contiguous, shares its storage."""
    return tensor.permute(0, *range(2, tensor.dim()), 1)


def from_rows(rows: torch.Tensor) -> torch.Tensor:
    """The (N, C, ...) view of an (N, ..., C) tensor: what ``rows_of`` undoes."""
    return rows.permute(0, rows.dim() - 1, *range(1, rows.dim() - 1))


def row_dim(tensor: torch.Tensor, dim: int) -> int:
    """Where dimension ``dim`` of a 4-D or 5-D tensor lies in its ``rows_of``.

    >>> row_dim(torch.empty(2, 3, 4, 5), 1), row_dim(torch.empty(2, 3, 4, 5), -1)
    (3, 2)
    """
    dim %= tensor.dim()
    return {0: 0, 1: tensor.dim() - 1}.get(dim, dim - 1)


def pixel_step(tensor: torch.Tensor) -> int | None:
    """How far apart, in elements, the pixels of a channels-last tensor lie; None for any other layout.

    C, or more where it is some channels of a wider tensor.
    """
    if tensor.dim() not in _FORMAT or tensor.device.type != "cpu" or tensor.stride(1) != 1:
        return None
    step = expected = tensor.stride(-1)
    for dim in (*range(tensor.dim() - 1, 1, -1), 0):
        if tensor.stride(dim) != expected:
            return None
        expected *= tensor.shape[dim]
    return step if step >= tensor.shape[1] else None


def transpose(source: torch.Tensor, target: torch.Tensor) -> bool:
    """Copy between a contiguous and a channels-last tensor of one shape and dtype; False if it is not that.

    Both are plain tensors in memory of their own, on the CPU.
    """
    if not (native.is_available() and _same_kind(source, target)):
        return False
    samples, channels, *sizes = source.shape
    pixels = math.prod(sizes)
    if is_channels_last(target) and strides_are_contiguous(source):
        to_rows(source.element_size(), source, target, samples, channels, pixels, channels)
    elif is_channels_last(source) and strides_are_contiguous(target):
        _from_rows(source.element_size(), source, target, samples, channels, pixels)
    else:
        return False
    return True


def _same_kind(source: torch.Tensor, target: torch.Tensor) -> bool:
    return (
        source.device.type == "cpu"
        and target.device.type == "cpu"
        and source.layout == torch.strided
        and source.element_size() <= 8
        and not source.is_quantized
        and source.is_conj() == target.is_conj()
        and source.is_neg() == target.is_neg()
        and source.untyped_storage().data_ptr() != target.untyped_storage().data_ptr()
    )
