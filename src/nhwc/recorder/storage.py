"""Identity of memory within one recording, and what the recorder notes of a tensor.

A StorageWeakRef keeps the small storage object (not its bytes) reserved, so that an identity is never given
twice while the bytes of dead activations are freed as usual.
"""

from __future__ import annotations

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from nhwc.model import TensorMeta

#: What tensors without memory of their own raise when asked for it: sparse, nested, opaque, wrappers, lazy parameters.
NO_STORAGE = (NotImplementedError, RuntimeError, AttributeError, TypeError, ValueError)


class StorageIds:
    """Numbers storages 0, 1, 2, ... in the order of their first use, without keeping their bytes alive."""

    def __init__(self) -> None:
        self._ids: dict[int, int] = {}
        self._reserved: list[StorageWeakRef] = []
        self._next = 0

    def of(self, tensor: torch.Tensor) -> int:
        """The number of the tensor's storage; a fresh number for a tensor that has none (sparse, nested, opaque)."""
        try:
            reference = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]
        except NO_STORAGE:
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


class TensorReader:
    """Reads the TensorMeta of tensors; memory that was given a name keeps it."""

    def __init__(self) -> None:
        self._storages = StorageIds()
        self._names: dict[int, str] = {}

    def give_name(self, tensor: torch.Tensor, name: str) -> None:
        """Call the memory of ``tensor`` by ``name`` unless it has a name already."""
        self._names.setdefault(self._storages.of(tensor), name)

    def name_of(self, tensor: torch.Tensor) -> str | None:
        """The name of the tensor's memory, None where it was given none."""
        return self._names.get(self._storages.of(tensor))

    def read(self, tensor: torch.Tensor) -> TensorMeta:
        """What is noted of ``tensor``; one without plain sizes and strides (sparse, nested, opaque) has shape () and no
        bytes."""
        storage = self._storages.of(tensor)
        shape, strides, offset = _geometry(tensor)
        return TensorMeta(
            shape,
            strides or (),
            str(tensor.dtype).removeprefix("torch."),
            str(tensor.device),
            storage,
            offset,
            tensor.element_size() if strides is not None else 0,
            self._names.get(storage),
        )

    def clear(self) -> None:
        """Let go of every storage."""
        self._storages.clear()


def _geometry(tensor: torch.Tensor) -> tuple[tuple[int, ...], tuple[int, ...] | None, int]:
    if tensor.layout is not torch.strided or tensor.is_nested:
        return (), None, 0
    try:
        shape, strides, offset = tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset()
    except NO_STORAGE:
        return (), None, 0
    if not all(type(number) is int for number in (*shape, *strides, offset)):  # symbolic sizes
        return (), None, 0
    return shape, strides, int(offset)
