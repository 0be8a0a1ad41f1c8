"""The operands of a recorded call as they would lie if the model kept one format throughout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nhwc.model import TensorMeta
from nhwc.strides import physical_order


def in_one_format(meta: TensorMeta, *, channels_last: bool) -> TensorMeta:
    """A dense version of ``meta`` with its channels after (channels last) or before its spatial dimensions.

    Rank 4 and 5 only; tensors without a spatial or channel extent, and expanded ones, stay as they are. A 5-D tensor
    whose two channel dimensions (1 and 2) lie next to each other, on either side of the last two, is read as a 4-D
    one with its channels split in two. Channels and spatial dimensions each keep their relative order.

    >>> in_one_format(TensorMeta((2, 3, 4, 5), (60, 20, 5, 1), "float32", "cpu", 0, 0, 4), channels_last=True).strides
    (60, 1, 15, 3)
    """
    rank = len(meta.shape)
    if rank not in (4, 5) or 0 in meta.shape or _is_expanded(meta):
        return meta
    order = [dim for dim in physical_order(meta.shape, meta.strides) if dim != 0]
    split = rank == 5 and _is_split(order)
    channels = _placed((1, 2) if split else (1,), order)
    space = _placed(range(3 if split else 2, rank), order)
    if not set(channels) & set(order) or not set(space) & set(order):
        return meta
    strides = [0] * rank
    step = 1
    for dim in reversed([0, *space, *channels] if channels_last else [0, *channels, *space]):
        strides[dim] = step
        step *= meta.shape[dim]
    return replace(meta, strides=tuple(strides), offset=0)


def is_split(meta: TensorMeta) -> bool:
    """Whether a 5-D tensor is a 4-D one whose channels were split in two and swapped, as a channel shuffle does."""
    if len(meta.shape) != 5 or 1 in meta.shape[1:3] or _is_expanded(meta):
        return False
    order = [dim for dim in physical_order(meta.shape, meta.strides) if dim != 0]
    return order[-2:] == [2, 1] or order[:2] == [2, 1]


def _is_expanded(meta: TensorMeta) -> bool:
    return any(size > 1 and stride == 0 for size, stride in zip(meta.shape, meta.strides, strict=True))


def _is_split(order: list[int]) -> bool:
    """Whether dims 1 and 2 are both fastest or both slowest but not in the plain order of a volume."""
    return len(order) > 2 and (order[-2:] in ([2, 1], [1, 2]) or order[:2] == [2, 1])


def _placed(dims: Sequence[int], order: list[int]) -> list[int]:
    """``dims`` in their physical order; those of size 1, which have none, before the next one in logical order."""
    placed = [dim for dim in order if dim in dims]
    for dim in dims:
        if dim not in placed:
            place = next((place for place, other in enumerate(placed) if other > dim), len(placed))
            placed.insert(place, dim)
    return placed
