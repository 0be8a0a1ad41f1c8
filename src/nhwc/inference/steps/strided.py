"""Strided tensors seen with as few dimensions as their strides allow: what kernels that know no shapes run over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nhwc.inference.native import Placed, Rows

#: Dimensions of ``Rows``.
MOST = 5


@dataclass(frozen=True)
class Collapsed:
    """sizes: outermost first, in the order of the first tensor's memory. strides: as many for each of the tensors."""

    sizes: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]

    def rows(self, tensor: int, placed: Placed) -> Rows:
        """One of the tensors as rows, whose densest dimension are the channels; at most five dimensions."""
        missing = MOST - len(self.sizes)
        return Rows(placed.ref, *[1] * missing, *self.sizes, *[0] * missing, *self.strides[tensor])


def collapsed(sizes: Sequence[int], *strides: Sequence[int], inner: int | None = None) -> Collapsed:
    """Dimensions in the order of the first tensor's strides, of size one left out, merged where all tensors allow it.

    inner: a dimension that becomes the last one, as it is, whatever its size.

    >>> collapsed((2, 3, 4, 5), (60, 1, 15, 3), (60, 1, 15, 3))
    Collapsed(sizes=(120,), strides=((1,), (1,)))
    >>> collapsed((2, 3, 4, 5), (60, 1, 15, 3), (3, 1, 0, 0))
    Collapsed(sizes=(2, 20, 3), strides=((60, 3, 1), (3, 0, 1)))
    """
    kept = [each for each in range(len(sizes)) if sizes[each] != 1 and each != inner]
    kept.sort(key=lambda each: (-strides[0][each], each))
    merged: list[tuple[int, list[int]]] = []
    for each in kept:
        steps = [of[each] for of in strides]
        if merged and all(out == step * sizes[each] for out, step in zip(merged[-1][1], steps, strict=True)):
            merged[-1] = (merged[-1][0] * sizes[each], steps)
        else:
            merged.append((sizes[each], steps))
    if inner is not None:
        merged.append((sizes[inner], [of[inner] for of in strides]))
    if not merged:
        merged.append((1, [1] * len(strides)))
    return Collapsed(
        tuple(size for size, _ in merged),
        tuple(tuple(steps[tensor] for _, steps in merged) for tensor in range(len(strides))),
    )


def densest(placed: Placed) -> int | None:
    """The dimension whose neighbours lie side by side; of several, one of size one, as strides of one mean then.

    None where no dimension does.

    >>> densest(Placed(1, 0, (2, 3, 4, 5), (60, 1, 15, 3))), densest(Placed(1, 0, (2, 1, 4, 5), (20, 1, 5, 1)))
    (1, 1)
    """
    dense = [each for each, stride in enumerate(placed.strides) if stride == 1]
    return min(dense, key=lambda each: (placed.shape[each] != 1, -each), default=None)


def broadcast(placed: Placed, shape: Sequence[int]) -> tuple[int, ...] | None:
    """Strides by which a tensor repeats to a shape, as torch aligns them; None where it does not fit."""
    missing = len(shape) - len(placed.shape)
    if missing < 0:
        return None
    own = (*[1] * missing, *placed.shape)
    if any(mine not in {1, size} for mine, size in zip(own, shape, strict=True)):
        return None
    steps = (*[0] * missing, *placed.strides)
    return tuple(step if mine == size else 0 for step, mine, size in zip(steps, own, shape, strict=True))


def is_overlapping(placed: Placed) -> bool:
    """Whether two elements may share memory, which no output may: seen from strides that are not nested."""
    order = sorted((stride, size) for stride, size in zip(placed.strides, placed.shape, strict=True) if size != 1)
    end = 0
    for stride, size in order:
        if stride <= end:
            return True
        end += stride * (size - 1)
    return False


def dense_rows(source: Placed, target: Placed) -> tuple[Rows, Rows] | None:
    """An input and the result of its size as rows along their densest dimension, which must be the same.

    None where it is not, or where the other dimensions are more than four.
    """
    inner = densest(target)
    if source.shape != target.shape or inner is None or is_overlapping(target):
        return None
    if source.strides[inner] != 1 and source.shape[inner] != 1:
        return None
    view = collapsed(target.shape, target.strides, source.strides, inner=inner)
    return None if len(view.sizes) > MOST else (view.rows(1, source), view.rows(0, target))
