"""Tensors that a plan reads while it runs, each once, as the flat memory that they span."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from nhwc.errors import EngineError

#: As safetensors names types.
TYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


class Constants:
    """Collects tensors while a plan is written: equal contents are kept once."""

    def __init__(self) -> None:
        self.tensors: list[torch.Tensor] = []
        self._by_address: dict[tuple[int, int, torch.dtype], int] = {}
        self._by_content: dict[tuple[bytes, torch.dtype], int] = {}

    def add(self, tensor: torch.Tensor) -> dict[str, Any]:
        """The tensor as JSON: where its memory is kept, its shape and its strides."""
        return {"at": self.memory(tensor), "shape": list(tensor.shape), "strides": list(tensor.stride())}

    def memory(self, tensor: torch.Tensor) -> int:
        """The number under which the memory that a tensor spans is kept. Raises EngineError for what no file holds."""
        if tensor.dtype not in TYPES or tensor.layout is not torch.strided or tensor.device.type != "cpu":
            raise EngineError(
                f"the engine cannot be saved: it reads a {tensor.layout} tensor of {tensor.dtype} on {tensor.device}, "
                "and a file holds dense ones of usual types on the CPU"
            )
        flat = spanned(tensor.detach().resolve_neg())
        address = (flat.data_ptr(), flat.numel(), flat.dtype)
        if address not in self._by_address:
            content = (hashlib.blake2b(memory_of(flat), digest_size=16).digest(), flat.dtype)
            if content not in self._by_content:
                self._by_content[content] = len(self.tensors)
                self.tensors.append(flat)
            self._by_address[address] = self._by_content[content]
        return self._by_address[address]


class Kept:
    """The tensors of a plan that is read back."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self.tensors = tensors

    def tensor(self, written: Mapping[str, Any]) -> torch.Tensor:
        """What ``Constants.add`` wrote."""
        shape: list[int] = written["shape"]
        return self.tensors[int(written["at"])].as_strided(shape, written["strides"])


def spanned(tensor: torch.Tensor) -> torch.Tensor:
    """From a tensor's first element to its last, as they lie in memory."""
    if tensor.numel() == 0:
        return tensor.new_empty(0)
    span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.as_strided((span,), (1,), tensor.storage_offset())


def memory_of(flat: torch.Tensor) -> memoryview:
    """The bytes of a flat tensor, without a copy; it must stay alive meanwhile."""
    size = flat.numel() * flat.element_size()
    return memoryview((ctypes.c_char * size).from_address(flat.data_ptr())) if size else memoryview(b"")
