"""Tensors that a plan reads while it runs, each once, as the flat memory that they span."""

from __future__ import annotations

import ctypes
import hashlib
import zlib
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


_BLOCK_BYTES = 4096
_BLOCK_WORDS = _BLOCK_BYTES // 8


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


def checksum(tensors: Sequence[torch.Tensor]) -> str:
    """A checksum of flat tensors with their types: sums of 64-bit words, which run at the speed of memory.

    Any one changed word changes it, and so do exchanged or missing blocks, since every block's sum has its own weight.
    """
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(f"{TYPES[tensor.dtype]} {tensor.numel()} {_summed(tensor)};".encode())
    return found.hexdigest()


def _summed(flat: torch.Tensor) -> str:
    memory = memory_of(flat)
    words = len(memory) // _BLOCK_BYTES * _BLOCK_WORDS
    total = 0
    if words:
        aligned = flat if flat.data_ptr() % 8 == 0 else flat.clone()
        blocks = torch.frombuffer(memory_of(aligned), dtype=torch.int64, count=words).view(-1, _BLOCK_WORDS)
        weights = torch.arange(len(blocks)) * 2 + 1  # odd, so that no bit of a sum is lost modulo 2^64
        total = int((blocks.sum(1) * weights).sum())
    return f"{total} {zlib.crc32(memory[words * 8 :])}"
