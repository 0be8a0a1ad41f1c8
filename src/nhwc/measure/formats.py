"""The operands of a recorded call as they would lie if the model kept one format throughout."""

from __future__ import annotations

from dataclasses import replace

from nhwc.model import TensorMeta
from nhwc.strides import physical_order


def in_one_format(meta: TensorMeta, *, channels_last: bool) -> TensorMeta:
    """A dense version of ``meta`` with its channels after (channels last) or before its spatial dimensions.

    Rank 4 and 5 only; tensors without a spatial or channel extent, and expanded ones, stay as they are. A 5-D tensor
    whose two channel dimensions (1 and 2) lie next to each other, on either side of the last two, is read as a 4-D
    one with its channels split in two; they keep their relative order.
    """
    rank = len(meta.shape)
    if rank not in (4, 5) or 0 in meta.shape or any(s > 1 and st == 0 for s, st in zip(meta.shape, meta.strides, strict=True)):
        return meta
    order = [dim for dim in physical_order(meta.shape, meta.strides) if dim != 0]
    split = rank == 5 and _is_split(order)
    channels = [dim for dim in order if dim in ((1, 2) if split else (1,))]
    space = [dim for dim in range(1, rank) if dim not in ((1, 2) if split else (1,)) and meta.shape[dim] > 1]
    if not channels or not space:
        return meta
    dims = [0, *space, *channels] if channels_last else [0, *channels, *space]
    strides = [1] * rank
    step = 1
    for dim in reversed(dims):
        strides[dim] = step
        step *= meta.shape[dim]
    for dim in range(rank):  # canonical strides for size 1, as an allocation gives them
        if meta.shape[dim] == 1:
            strides[dim] = 1 if channels_last and dim == 1 else strides[dim]
    return replace(meta, strides=tuple(strides), offset=0)


def _is_split(order: list[int]) -> bool:
    """Whether dims 1 and 2 are both fastest or both slowest but not in the plain order of a volume."""
    return order[-2:] == [2, 1] or order[-2:] == [1, 2] or order[:2] == [2, 1]
