"""What a replacement asks of its operands, cheaply, and the tensors that it answers with."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Sequence
from typing import NamedTuple

import torch

from nhwc.kernels import native
from nhwc.kernels.dispatcher import is_plain

#: (element bytes, source, target, samples, channels, pixels, elements between two pixels of the target).
to_rows = native.Function("to_rows", "ippllll")
_from_rows = native.Function("from_rows", "ipplll")
_advise_huge_pages = native.Function("advise_huge_pages", "pl")

#: From here on a fresh result asks for huge pages: mapping it in small ones costs as much as filling it.
_HUGE_BYTES = 4 << 20
_HUGE = os.environ.get("NHWC_HUGE_PAGES") != "0"

#: Rank → its channels-last format.
FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


class _Order(NamedTuple):
    """What strides say of a shape. last, plain: the very strides of a fresh channels-last or contiguous tensor.

    A tensor that is both in torch's eyes (C == 1, H == W == 1) counts by the strides that it has.
    """

    last: bool
    plain: bool
    pixel_step: int | None


@functools.lru_cache(maxsize=4096)
def _order(shape: Sequence[int], strides: Sequence[int]) -> _Order:
    """Remembered, since every replaced call asks it, and a step asks about the same few hundred shapes."""
    plain, step = True, 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        plain = plain and stride == step
        step *= max(size, 1)
    if len(shape) not in FORMATS:
        return _Order(False, plain, None)
    return _Order(not plain and tuple(strides) == canonical_strides(shape), plain, _pixel_step(shape, strides))


def _pixel_step(shape: Sequence[int], strides: Sequence[int]) -> int | None:
    if strides[1] != 1:
        return None
    step = expected = strides[-1]
    for dim in (*range(len(shape) - 1, 1, -1), 0):
        if strides[dim] != expected and shape[dim] != 1:
            return None
        expected *= shape[dim]
    return step if step >= shape[1] else None


def is_channels_last(tensor: torch.Tensor) -> bool:
    """Whether ``tensor`` is a 4-D or 5-D one on the CPU with canonical channels-last strides, and these are not the
    contiguous ones as well.
    """
    return tensor.is_cpu and tensor.layout is torch.strided and _order(tensor.shape, tensor.stride()).last


def lies_channels_last(tensor: torch.Tensor) -> bool:
    """``is_channels_last`` for a tensor on any device."""
    return tensor.layout is torch.strided and _order(tensor.shape, tensor.stride()).last


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
    return _order(tensor.shape, tensor.stride()).plain


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
    return in_huge_pages(
        torch.empty_strided(tuple(shape), canonical_strides(shape), dtype=dtype or like.dtype, device=like.device)
    )


def in_huge_pages(fresh: torch.Tensor) -> torch.Tensor:
    """``fresh``, a dense tensor that nothing was written to yet; a large one with advice on its memory.

    Advice only, for whole huge pages inside the tensor; NHWC_HUGE_PAGES=0 in the environment leaves it out.
    """
    size = fresh.nbytes
    if size >= _HUGE_BYTES and _HUGE and type(fresh) is torch.Tensor and fresh.is_cpu and native.is_available():
        _advise_huge_pages(fresh, size)
    return fresh


def as_channels_last(tensor: torch.Tensor) -> torch.Tensor:
    """``tensor`` (4-D or 5-D) with canonical channels-last strides: itself or a view where it lies so, else a copy."""
    if lies_channels_last(tensor):
        return tensor
    if tensor.device.type in {"cpu", "cuda"} and tensor.is_contiguous(memory_format=FORMATS[tensor.dim()]):
        # the strides of sizes of 1 are all that differs
        return tensor.as_strided(tensor.shape, canonical_strides(tensor.shape))
    result = empty_channels_last(tensor.shape, tensor)
    if not transpose(tensor, result):
        result.copy_(tensor)
    return result


def as_contiguous(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous copy of a channels-last tensor, or itself where it is contiguous."""
    if tensor.is_contiguous():
        return tensor
    result = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    return result if transpose(tensor, result) else tensor.contiguous()


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
    if not tensor.is_cpu or tensor.layout is not torch.strided:
        return None
    return _order(tensor.shape, tensor.stride()).pixel_step


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
