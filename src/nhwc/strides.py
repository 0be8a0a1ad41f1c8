"""Pure stride algebra on tuples: canonical strides, what strides say about a layout, and the physical order of
dimensions. Nothing here needs torch.

A memory format is named by the string that torch prints for it: "contiguous", "channels_last",
"channels_last_3d"; a ``torch.memory_format`` is accepted wherever a name is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from nhwc.errors import FormatError

CONTIGUOUS = "contiguous"
CHANNELS_LAST = "channels_last"
CHANNELS_LAST_3D = "channels_last_3d"

_RANK_OF = {CHANNELS_LAST: 4, CHANNELS_LAST_3D: 5}
_CHANNELS_LAST_OF = {4: CHANNELS_LAST, 5: CHANNELS_LAST_3D}


class LayoutKind(str, Enum):
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
    """
    name = str(memory_format).removeprefix("torch.").removesuffix("_format")
    if name not in (CONTIGUOUS, CHANNELS_LAST, CHANNELS_LAST_3D):
        raise FormatError(
            f"unknown memory format {memory_format!r}; use 'contiguous', 'channels_last' (4-D) or 'channels_last_3d' (5-D)"
        )
    return name


def channels_last_for(rank: int) -> str | None:
    """The channels-last format of a rank: 4 and 5 have one, other ranks have none."""
    return _CHANNELS_LAST_OF.get(rank)


def strides_for(shape: Sequence[int], memory_format: object) -> tuple[int, ...]:
    """Canonical strides, in elements, of a dense tensor of ``shape`` in ``memory_format``.

    A size of 0 counts as 1, as torch does when it allocates. Raises FormatError where the format does not
    exist for the rank of ``shape``, or where a size is negative.

    >>> strides_for((10, 3, 32, 32), "channels_last")
    (3072, 1, 96, 3)
    """
    name = format_name(memory_format)
    sizes = tuple(int(size) for size in shape)
    if any(size < 0 for size in sizes):
        raise FormatError(f"shape {sizes} has a negative size; sizes are 0 or more")
    rank = len(sizes)
    if name == CONTIGUOUS:
        order: Sequence[int] = range(rank)
    else:
        if rank != _RANK_OF[name]:
            hint = {4: "channels_last", 5: "channels_last_3d"}.get(rank, "contiguous")
            raise FormatError(f"{name} needs a {_RANK_OF[name]}-D shape, got {rank}-D {sizes}; use {hint!r} for it")
        order = (0, *range(2, rank), 1)
    strides = [0] * rank
    step = 1
    for dim in reversed(order):
        strides[dim] = step
        step *= max(sizes[dim], 1)
    return tuple(strides)


def holds(shape: Sequence[int], strides: Sequence[int], memory_format: object) -> bool:
    """What ``tensor.is_contiguous(memory_format=...)`` answers: strides of size-1 dimensions do not count."""
    canonical = strides_for(shape, memory_format)
    if 0 in shape:
        return format_name(memory_format) == CONTIGUOUS or _holds_empty(shape, strides)
    return all(size == 1 or have == want for size, have, want in zip(shape, strides, canonical, strict=True))


def _holds_empty(shape: Sequence[int], strides: Sequence[int]) -> bool:
    expected = 1
    for dim in (1, *range(len(shape) - 1, 1, -1), 0):
        if shape[dim] != 1:
            if strides[dim] != expected:
                return False
            expected *= shape[dim]
    return True


def physical_order(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """Dimensions from the slowest to the fastest in memory, leaving out those of size 1.

    Dimensions of equal stride keep their logical order. Slices keep the order of the tensor they were cut from.
    """
    dims = [dim for dim, size in enumerate(shape) if size != 1]
    return tuple(sorted(dims, key=lambda dim: -strides[dim]))


def layout(shape: Sequence[int], strides: Sequence[int]) -> Layout:
    """Read a layout from ``shape`` and ``strides`` (in elements)."""
    sizes, steps = tuple(shape), tuple(strides)
    channels_last = channels_last_for(len(sizes))
    is_contiguous = holds(sizes, steps, CONTIGUOUS)
    is_channels_last = channels_last is not None and holds(sizes, steps, channels_last)
    free = ((CONTIGUOUS,) if is_contiguous else ()) + ((channels_last,) if is_channels_last and channels_last else ())
    if is_contiguous and is_channels_last:
        kind = LayoutKind.AMBIGUOUS
    elif is_contiguous:
        kind = LayoutKind.CONTIGUOUS
    elif is_channels_last:
        kind = LayoutKind(channels_last)
    else:
        kind = _other_kind(sizes, steps)
    target = channels_last if is_channels_last and channels_last else CONTIGUOUS
    canonical = strides_for(sizes, target)
    return Layout(kind, steps, canonical, steps == canonical, free)


def _other_kind(sizes: tuple[int, ...], steps: tuple[int, ...]) -> LayoutKind:
    expected = 1
    gaps = False
    for dim in reversed(physical_order(sizes, steps)):
        if steps[dim] < expected:
            return LayoutKind.OVERLAPPING
        gaps = gaps or steps[dim] != expected
        expected = steps[dim] * (sizes[dim] - 1) + expected if gaps else expected * sizes[dim]
    return LayoutKind.NOT_DENSE if gaps else LayoutKind.STRIDED
