"""Identity of memory within one recording.

A StorageWeakRef keeps the small storage object (not its bytes) reserved, so that an identity is never given
twice while the bytes of dead activations are freed as usual.
"""

from __future__ import annotations

import torch
from torch.multiprocessing.reductions import StorageWeakRef


class StorageIds:
    """Numbers storages 0, 1, 2, ... in the order of their first use, without keeping their bytes alive."""

    def __init__(self) -> None:
        self._ids: dict[int, int] = {}
        self._reserved: list[StorageWeakRef] = []
        self._next = 0

    def of(self, tensor: torch.Tensor) -> int:
        """The number of the tensor's storage; a fresh number for a tensor that has none (sparse, nested, opaque)."""
        try:
            reference = StorageWeakRef(tensor.untyped_storage())
        except (NotImplementedError, RuntimeError, AttributeError, TypeError):
            return self._take()
        number = self._ids.get(reference.cdata)
        if number is None:
            number = self._ids[reference.cdata] = self._take()
            self._reserved.append(reference)
        return number

    def _take(self) -> int:
        number = self._next
        self._next += 1
        return number

    def clear(self) -> None:
        """Let go of every storage."""
        self._ids.clear()
        self._reserved.clear()
