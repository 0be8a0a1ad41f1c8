"""Tensors as channels-last rows, for kernels that walk along contiguous channels."""

from __future__ import annotations

from dataclasses import replace

from nhwc.inference.native import Placed, Rows
from nhwc.inference.steps.strided import is_overlapping

#: Dimensions of a tensor that Rows can hold.
_RANKS = range(2, 6)


def channels_last(placed: Placed) -> Rows | None:
    """A tensor of samples, channels and up to three spatial dimensions as rows; None unless its channels are dense."""
    if len(placed.shape) not in _RANKS:
        return None
    if placed.shape[1] == 1:
        placed = replace(placed, strides=(placed.strides[0], 1, *placed.strides[2:]))
    return Rows.of(placed) if placed.strides[1] == 1 else None


def pair(source: Placed, target: Placed) -> tuple[Rows, Rows] | None:
    """An input and the result of as many dimensions, or (N, C), as rows; None where they are none or share memory."""
    rows = channels_last(source), channels_last(target)
    if rows[0] is None or rows[1] is None or is_overlapping(target):
        return None
    return (rows[0], rows[1]) if source.shape[:2] == target.shape[:2] else None
