"""Where values lie: buffers, places in them, and the order of dimensions that each kind of work gives its result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import pairwise

import torch

from nhwc.inference.graph import View
from nhwc.inference.native import Placed


class Memory(Enum):
    """Whose memory a buffer is. FOREIGN: a tensor that torch made during the call."""

    ARENA = auto()
    CONSTANT = auto()
    INPUT = auto()
    OUTPUT = auto()
    FOREIGN = auto()


@dataclass(eq=False)
class Buffer:
    """Memory for one or several values. size: in elements of float32.

    entry, offset: its table entry, and bytes from there, once memory is planned. constant: what keeps it alive.
    """

    memory: Memory
    size: int
    entry: int = 0
    offset: int = 0
    constant: torch.Tensor | None = None


@dataclass(frozen=True, eq=False)
class Place:
    """A value in a buffer. offset: in elements, strides: too."""

    buffer: Buffer
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def placed(self) -> Placed:
        """As compiled steps name it."""
        return Placed(self.buffer.entry, self.buffer.offset + 4 * self.offset, self.shape, self.strides)

    def through(self, view: View) -> Place | None:
        """What a view of it is; None where the strides do not allow it."""
        try:
            seen = view.apply(self.sketch())
        except RuntimeError:
            return None
        return Place(self.buffer, self.offset + int(seen.storage_offset()), tuple(seen.shape), tuple(seen.stride()))

    def sketch(self) -> torch.Tensor:
        """A tensor without memory that has its shape and strides."""
        return torch.empty_strided(self.shape, self.strides, dtype=torch.float32, device="meta")

    def is_whole(self) -> bool:
        """Whether it covers its buffer without gaps or repeats."""
        return self.buffer.size == math.prod(self.shape) and is_dense(self.shape, self.strides)


def constant_place(tensor: torch.Tensor) -> Place:
    """A constant by its address."""
    buffer = Buffer(Memory.CONSTANT, tensor.numel(), 0, tensor.data_ptr(), tensor)
    return Place(buffer, 0, tuple(tensor.shape), tuple(tensor.stride()))


Order = tuple[int, ...]  #: dimensions, the one with the longest stride first


def default_order(rank: int) -> Order:
    """Channels last for pictures and volumes, else as torch makes tensors."""
    return (0, *range(2, rank), 1) if rank in {4, 5} else tuple(range(rank))


def strides_in(order: Order, shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a dense tensor whose dimensions lie in this order."""
    strides, step = [0] * len(shape), 1
    for dim in reversed(order):
        strides[dim] = step
        step *= max(shape[dim], 1)
    return tuple(strides)


def order_of(shape: Sequence[int], strides: Sequence[int]) -> Order:
    """The order in which dimensions lie; where sizes of 1 leave it open, the default, then torch's own."""
    rank = len(shape)
    for order in (default_order(rank), tuple(range(rank))):
        lying = [strides[dim] for dim in order if shape[dim] > 1]
        if all(outer >= inner for outer, inner in pairwise(lying)):
            return order
    return tuple(sorted(range(rank), key=lambda dim: (-strides[dim], shape[dim] > 1)))


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether the elements fill their memory, each once."""
    expected = 1
    for stride, size in sorted((stride, size) for stride, size in zip(strides, shape, strict=True) if size != 1):
        if stride != expected:
            return False
        expected = stride * size
    return True


def with_axis_innermost(order: Order, axis: int) -> Order:
    """The order with one dimension moved to its end."""
    return (*[dim for dim in order if dim != axis], axis)
