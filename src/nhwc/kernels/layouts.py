"""What a replacement asks of its operands, cheaply, and the tensors that it answers with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

_FORMAT = {4: torch.channels_last, 5: torch.channels_last_3d}


def is_channels_last(tensor: Any) -> bool:
    """Whether torch takes ``tensor`` (4-D or 5-D, CPU, plain) for channels last: by canonical strides, not by luck.

    A tensor that is contiguous as well (C == 1, H == W == 1) counts by the strides that it has, as in torch.
    """
    rank = tensor.dim()
    if rank not in _FORMAT or tensor.device.type != "cpu" or not tensor.is_contiguous(memory_format=_FORMAT[rank]):
        return False
    return tensor.stride() == canonical_strides(tensor.shape) and not (tensor.is_contiguous() and _reads_contiguous(tensor))


def _reads_contiguous(tensor: torch.Tensor) -> bool:
    """Both formats hold: whether the strides are the contiguous ones."""
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
    return torch.empty_strided(
        tuple(shape), canonical_strides(shape), dtype=dtype or like.dtype, device=like.device
    )


def as_channels_last(tensor: torch.Tensor) -> torch.Tensor:
    """``tensor`` (4-D or 5-D) with canonical channels-last strides: itself where it has them, else a copy."""
    if is_channels_last(tensor):
        return tensor
    result = empty_channels_last(tensor.shape, tensor)
    return result.copy_(tensor)


def rows_of(tensor: torch.Tensor) -> torch.Tensor:
    """The (N, ..., C) view of a channels-last tensor: contiguous, shares its storage."""
    return tensor.permute(0, *range(2, tensor.dim()), 1)


def from_rows(rows: torch.Tensor) -> torch.Tensor:
    """The (N, C, ...) view of an (N, ..., C) tensor: what ``rows_of`` undoes."""
    return rows.permute(0, rows.dim() - 1, *range(1, rows.dim() - 1))
