"""Weights as the matrix product reads them: panels of a few vectors of columns, each read straight through.

Mirrors ``Panels`` of kernels/native/src/engine/product.h.
"""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as functional

from nhwc.kernels.native import library

#: Vectors of the widest panel.
MOST_VECTORS = 4
_vectors = library.Function("engine_vectors", "pp")


@cache
def _found() -> tuple[int, int]:
    lanes, registers = ctypes.c_int64(), ctypes.c_int64()
    _vectors(ctypes.addressof(lanes), ctypes.addressof(registers))
    return lanes.value, registers.value


def lanes() -> int:
    """Floats of one vector of the library in use: 16, 8 or 4."""
    return _found()[0]


def registers() -> int:
    """Vector registers that the library in use has: 32 or 16."""
    return _found()[1]


def most_rows(vectors: int) -> int:
    """Rows of the tallest tile for a panel of so many vectors, as product.h has them."""
    arm = registers() == 32 and lanes() == 4
    tall = (12, 9, 7, 5) if arm else (12, 12, 8, 6) if registers() == 32 else (8, 6, 4, 2)
    return tall[vectors - 1]


def up(number: int, multiple: int) -> int:
    """The next multiple."""
    return -(-number // multiple) * multiple


@dataclass(frozen=True)
class Panels:
    """How columns are cut: as few panels as ``vectors`` allows, whose widths differ by one vector at most."""

    columns: int
    vectors: int

    @property
    def count(self) -> int:
        return -(-self._all // self.vectors)

    @property
    def padded(self) -> int:
        """Columns in whole vectors."""
        return self._all * lanes()

    @property
    def _all(self) -> int:
        return -(-self.columns // lanes())

    @property
    def parts(self) -> tuple[tuple[int, int], ...]:
        """(panels, columns of each): the wide ones, then the narrow ones."""
        narrow, wide = divmod(self._all, self.count)
        found = ((wide, (narrow + 1) * lanes()), (self.count - wide, narrow * lanes()))
        return tuple(each for each in found if each[0])


def packed(matrices: torch.Tensor, vectors: int, zeros: int = 0) -> torch.Tensor:
    """(groups, *depth, columns) as one run of floats, [group][panel][depth][column], and after them so many zeros.

    Columns are padded with zeros to whole vectors. The first float is aligned as torch aligns memory, 64 bytes. Each
    weight is moved once, from where it lies: the matrices may be a permuted view.
    """
    groups, *depth, columns = matrices.shape
    panels, rows = Panels(columns, vectors), math.prod(depth)
    room = torch.zeros(groups * rows * panels.padded + zeros, dtype=torch.float32, device="cpu")
    of_group = room[: groups * rows * panels.padded].view(groups, rows * panels.padded)
    first = 0
    for count, width in panels.parts:
        to = of_group[:, first * rows : (first + count * width) * rows].view(groups, count, *depth, width)
        whole, rest = divmod(min(columns - first, count * width), width)
        given = matrices[..., first : first + whole * width]
        to[:, :whole].copy_(given.view(*given.shape[:-1], whole, width).movedim(-2, 1))
        if rest:
            to[:, whole, ..., :rest].copy_(matrices[..., columns - rest :])
        first += count * width
    return room


def padded_bias(bias: torch.Tensor | None) -> torch.Tensor | None:
    """The bias with zeros after it, so that a whole vector can be read at its last column."""
    return None if bias is None else functional.pad(bias.detach().float(), (0, lanes())).contiguous()
