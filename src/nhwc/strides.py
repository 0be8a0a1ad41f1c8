"""Pure stride algebra on tuples: canonical strides, what strides say about a layout, and the physical order of
dimensions. Nothing here needs torch.

A memory format is named by the string that torch prints for it: "contiguous", "channels_last",
"channels_last_3d"; a ``torch.memory_format`` is accepted wherever a name is.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from nhwc.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Sequence

CONTIGUOUS = "contiguous"
CHANNELS_LAST = "channels_last"
CHANNELS_LAST_3D = "channels_last_3d"

_RANK_OF = {CHANNELS_LAST: 4, CHANNELS_LAST_3D: 5}
_CHANNELS_LAST_OF = {4: CHANNELS_LAST, 5: CHANNELS_LAST_3D}


class LayoutKind(StrEnum):
    """How the elements of a tensor lie in memory."""

    CONTIGUOUS = "contiguous"
    CHANNELS_LAST = "channels_last"
    CHANNELS_LAST_3D = "channels_last_3d"
    AMBIGUOUS = "ambiguous"
    STRIDED = "strided"
    NOT_DENSE = "not_dense"
    OVERLAPPING = "overlapping"


@dataclass(frozen=True)
class Layout:
    """What the strides of a tensor say.

    kind: the one word for it. ``ambiguous`` means that the contiguous and the channels-last check both hold.
        ``strided`` is dense in some other order of dimensions; ``not_dense`` has gaps (a slice);
        ``overlapping`` visits an element more than once (expanded, stride 0).
    strides: the strides as they are, in elements.
    canonical: the canonical strides of the format that the bytes lie in (channels last for an ambiguous
        tensor of rank 4 or 5); for strided, not dense and overlapping tensors those of a fresh contiguous copy.
    is_canonical: whether ``strides == canonical``; only then do kernels that derive a format from strides see it.
    free: the memory formats that a restride alone (no copy) reaches.
    """

    kind: LayoutKind
    strides: tuple[int, ...]
    canonical: tuple[int, ...]
    is_canonical: bool
    free: tuple[str, ...]


def format_name(memory_format: object) -> str:
    """The plain name of a memory format given as a string or as a ``torch.memory_format``.

    Raises FormatError for anything that is not contiguous, channels last or channels last 3-D.

    >>> format_name("channels_last")
    'channels_last'
    """
    name = str(memory_format).removeprefix("torch.").removesuffix("_format")
    if name not in (CONTIGUOUS, CHANNELS_LAST, CHANNELS_LAST_3D):
        raise FormatError(
            f"unknown memory format {memory_format!r}; "
            "use 'contiguous', 'channels_last' (4-D) or 'channels_last_3d' (5-D)"
        )
    return name


def channels_last_for(rank: int) -> str | None:
    """The channels-last format of a rank: 4 and 5 have one, other ranks have none.

    >>> channels_last_for(5)
    'channels_last_3d'
    """
    return _CHANNELS_LAST_OF.get(rank)


def memory_order(rank: int, memory_format: object) -> tuple[int, ...]:
    """Dimensions from the slowest to the fastest in ``memory_format``; raises FormatError for other ranks.

    >>> memory_order(4, "channels_last")
    (0, 2, 3, 1)
    """
    name = format_name(memory_format)
    if name == CONTIGUOUS:
        return tuple(range(rank))
    if rank != _RANK_OF[name]:
        fix = _CHANNELS_LAST_OF.get(rank, CONTIGUOUS)
        raise FormatError(f"{name} needs a {_RANK_OF[name]}-D tensor, got {rank}-D; use {fix!r} for {rank}-D")
    return (0, *range(2, rank), 1)


def strides_for(shape: Sequence[int], memory_format: object) -> tuple[int, ...]:
    """Canonical strides, in elements, of a dense tensor of ``shape`` in ``memory_format``: those of ``torch.empty``.

    A size of 0 counts as 1 in the contiguous format and as 0 in channels last, as torch has it. Raises
    FormatError where the format does not exist for the rank of ``shape``, or where a size is no whole number
    of 0 or more.

    >>> strides_for((10, 3, 32, 32), "channels_last")
    (3072, 1, 96, 3)
    >>> strides_for((8, 1, 3, 3), "channels_last")
    (9, 1, 3, 1)
    """
    name = format_name(memory_format)
    sizes = _sizes(shape)
    strides = [0] * len(sizes)
    step = 1
    for dim in reversed(memory_order(len(sizes), name)):
        strides[dim] = step
        step *= max(sizes[dim], 1) if name == CONTIGUOUS else sizes[dim]
    return tuple(strides)


def _sizes(shape: Sequence[int]) -> tuple[int, ...]:
    try:
        sizes = tuple(operator.index(size) for size in shape)
    except TypeError:
        raise FormatError(f"shape {shape!r} is not a sequence of whole numbers") from None
    if any(size < 0 for size in sizes):
        raise FormatError(f"shape {sizes} has a negative size; sizes are 0 or more")
    return sizes


def holds(shape: Sequence[int], strides: Sequence[int], memory_format: object) -> bool:
    """What ``tensor.is_contiguous(memory_format=...)`` answers: strides of dimensions of size 1 do not count.

    >>> holds((8, 1, 3, 3), (9, 9, 3, 1), "channels_last")
    True
    """
    name = format_name(memory_format)
    if _RANK_OF.get(name, len(shape)) != len(shape):
        return False
    if name == CONTIGUOUS and 0 in shape:
        return True
    canonical = strides_for(shape, name)
    return all(size == 1 or have == want for size, have, want in zip(shape, strides, canonical, strict=True))


def physical_order(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """Dimensions from the slowest to the fastest in memory, leaving out those of size 1.

    Dimensions of equal stride keep their logical order. Slices keep the order of the tensor they were cut from.

    >>> physical_order((10, 3, 32, 32), (3072, 1, 96, 3))
    (0, 2, 3, 1)
    """
    dims = [dim for dim, size in enumerate(shape) if size != 1]
    return tuple(sorted(dims, key=lambda dim: -strides[dim]))


def layout(shape: Sequence[int], strides: Sequence[int]) -> Layout:
    """Read a layout from ``shape`` and ``strides`` (in elements).

    >>> layout((8, 1, 3, 3), (9, 9, 3, 1)).kind.value
    'ambiguous'
    """
    sizes, steps = _sizes(shape), tuple(strides)
    if len(sizes) != len(steps):
        raise FormatError(f"shape {sizes} and strides {steps} differ in length; give one stride for each size")
    channels_last = channels_last_for(len(sizes))
    is_contiguous = holds(sizes, steps, CONTIGUOUS)
    is_channels_last = channels_last is not None and holds(sizes, steps, channels_last)
    if is_contiguous and is_channels_last:
        kind = LayoutKind.AMBIGUOUS
    elif is_contiguous:
        kind = LayoutKind.CONTIGUOUS
    elif is_channels_last and channels_last:
        kind = LayoutKind(channels_last)
    else:
        kind = _other_kind(sizes, steps)
    empty = 0 in sizes
    free = ((CONTIGUOUS,) if is_contiguous else ()) + (
        (channels_last,) if channels_last is not None and (is_channels_last or empty) else ()
    )
    target = channels_last if is_channels_last and channels_last else CONTIGUOUS
    canonical = strides_for(sizes, target)
    return Layout(kind, steps, canonical, steps == canonical, free)


def _other_kind(sizes: tuple[int, ...], steps: tuple[int, ...]) -> LayoutKind:
    """The kind of a tensor that has elements and holds in no memory format."""
    dims = physical_order(sizes, steps)
    expected, dense, nested = 1, True, True
    for dim in reversed(dims):
        dense = dense and steps[dim] == expected
        nested = nested and steps[dim] >= expected
        expected = steps[dim] * (sizes[dim] - 1) + expected
    if dense:
        return LayoutKind.STRIDED
    # Dimensions that do not nest may still interleave without meeting: only then is a search needed.
    if not nested and _meets([(sizes[dim], steps[dim]) for dim in dims]):
        return LayoutKind.OVERLAPPING
    return LayoutKind.NOT_DENSE


def _meets(dims: list[tuple[int, int]], offset: int = 0, moved: bool = False) -> bool:
    """Whether two different indices reach the same element; ``dims`` are (size, stride), largest stride first."""
    if not dims:
        return moved and offset == 0
    (size, stride), rest = dims[0], dims[1:]
    reach = sum((other - 1) * step for other, step in rest)
    if stride == 0:
        return True
    low = max(-(size - 1), -((offset + reach) // stride))
    high = min(size - 1, (reach - offset) // stride)
    return any(_meets(rest, offset + move * stride, moved or move != 0) for move in range(low, high + 1))
