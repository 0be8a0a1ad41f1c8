"""The memory of one call: an arena, working memory, and the table by which compiled steps find them."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field

import torch

from nhwc.inference.layout import Memory, Place
from nhwc.inference.native import ABSOLUTE, ALIGNMENT_BYTES, ARENA


@dataclass(eq=False)
class Frame:
    """memory: the arena and, after it, the working memory of steps. Used by one call at a time."""

    arena: torch.Tensor
    scratch: int
    table: ctypes.Array[ctypes.c_void_p]
    memory: torch.Tensor
    views: dict[Place, torch.Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, arena_bytes: int, scratch_bytes: int, entries: int) -> Frame:
        """entries: how many the table has."""
        memory = torch.empty(arena_bytes + scratch_bytes + 2 * ALIGNMENT_BYTES, dtype=torch.uint8, device="cpu")
        start = -memory.data_ptr() % ALIGNMENT_BYTES
        arena = memory[start : start + max(arena_bytes, 4)].view(torch.float32)
        table = (ctypes.c_void_p * entries)()
        table[ABSOLUTE], table[ARENA] = None, arena.data_ptr()
        return cls(arena, arena.data_ptr() + arena_bytes, table, memory)

    def tensor(self, place: Place, held: dict[object, torch.Tensor]) -> torch.Tensor:
        """A place as a tensor. held: the tensors of buffers that are not the arena's, by buffer."""
        buffer = place.buffer
        if buffer.memory is Memory.ARENA:
            known = self.views.get(place)
            if known is None:
                offset = self.arena.storage_offset() + buffer.offset // 4 + place.offset
                known = self.views[place] = self.arena.as_strided(place.shape, place.strides, offset)
            return known
        whole = buffer.constant if buffer.memory is Memory.CONSTANT else held[buffer]
        assert whole is not None
        if whole.shape == place.shape and whole.stride() == place.strides:
            return whole
        return whole.as_strided(place.shape, place.strides, whole.storage_offset() + place.offset)

    def shares(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor lies in the arena."""
        return tensor.untyped_storage().data_ptr() == self.memory.untyped_storage().data_ptr()
