"""The engine's side of the compiled library: parameters as it reads them, and a program of steps that it runs.

The structures mirror ``kernels/native/src/engine``, field by field; every field is 8 bytes wide.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import torch

from nhwc.kernels.native import library

#: Entries of the table that every call brings: addresses (weights), the arena, then what a plan adds.
ABSOLUTE, ARENA, FIRST_FREE = 0, 1, 2
ALIGNMENT_BYTES = 64


class Activation(IntEnum):
    """The codes of epilogue.h."""

    NONE = 0
    CLAMP = 1
    LEAKY_RELU = 2
    SILU = 3
    HARDSWISH = 4
    HARDSIGMOID = 5
    SIGMOID = 6
    GELU = 7
    GELU_TANH = 8
    TANH = 9
    PRELU = 10
    ELU = 11
    MISH = 12
    SOFTPLUS = 13


class Ref(ctypes.Structure):
    """Memory: ``table[base] + offset`` bytes; base -1 is none."""

    _fields_ = [("base", ctypes.c_int64), ("offset", ctypes.c_int64)]


NOTHING = (-1, 0)


@dataclass(frozen=True)
class Placed:
    """A float32 tensor whose memory is named by a table entry.

    shape: logical, as torch has it: (N, C, H, W), (N, C, D, H, W), (N, C), or any other. strides: of the same
    dimensions, in elements. base: the entry; offset: bytes from it.
    """

    base: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @staticmethod
    def constant(tensor: torch.Tensor) -> Placed:
        """A tensor by its address; the caller keeps it alive as long as the program."""
        return Placed(ABSOLUTE, tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()))

    @property
    def ref(self) -> Ref:
        return Ref(self.base, self.offset)


class Rows(ctypes.Structure):
    """A channels-last tensor of float32; see step.h. Strides in elements."""

    _fields_ = [
        ("at", Ref),
        *[(name, ctypes.c_int64) for name in ("n", "d", "h", "w", "c", "sn", "sd", "sh", "sw", "sc")],
    ]

    @classmethod
    def none(cls) -> Rows:
        return cls(Ref(*NOTHING))

    @classmethod
    def of(cls, placed: Placed | None) -> Rows:
        """(N, C), (N, C, L), (N, C, H, W) and (N, C, D, H, W): what is missing has size 1; None is no tensor."""
        if placed is None:
            return cls.none()
        spatial = len(placed.shape) - 2
        if not 0 <= spatial <= 3:
            raise ValueError(f"rows have 2 to 5 dimensions, not {placed.shape}")
        sizes = (placed.shape[0], *[1] * (3 - spatial), *placed.shape[2:], placed.shape[1])
        strides = (placed.strides[0], *[0] * (3 - spatial), *placed.strides[2:], placed.strides[1])
        return cls(placed.ref, *sizes, *strides)


class Epilogue(ctypes.Structure):
    """activation(sum + bias + addend), or with addend_last activation(sum + bias) + addend; see epilogue.h."""

    _fields_ = [
        ("activation", ctypes.c_int64),
        ("addend_last", ctypes.c_int64),
        ("lo", ctypes.c_double),
        ("hi", ctypes.c_double),
        ("slope", Ref),
        ("addend", Rows),
    ]

    @classmethod
    def of(
        cls,
        activation: Activation = Activation.NONE,
        lo: float = 0.0,
        hi: float = 0.0,
        slope: Placed | None = None,
        addend: Placed | None = None,
        addend_last: bool = False,
    ) -> Epilogue:
        where = Ref(*NOTHING) if slope is None else slope.ref
        return cls(activation, int(addend_last), lo, hi, where, Rows.of(addend))


class Conv(ctypes.Structure):
    """A convolution for any of its algorithms; see conv.h. Three spatial numbers each: depth, height, width."""

    _fields_ = [
        ("x", Rows),
        ("y", Rows),
        ("epilogue", Epilogue),
        ("weight", Ref),
        ("bias", Ref),
        ("groups", ctypes.c_int64),
        ("kernel", ctypes.c_int64 * 3),
        ("stride", ctypes.c_int64 * 3),
        ("dilation", ctypes.c_int64 * 3),
        ("padding", ctypes.c_int64 * 3),
        ("choice", ctypes.c_int64 * 8),
    ]


@dataclass(frozen=True)
class Step:
    """One call of a kernel, ready to run.

    function: the kernel's name, as in NHWC_STEP. parameters: its structure. label: the algorithm with its choices, for
    people and caches. scratch_bytes: working memory at the given number of threads. constants: what must stay alive.
    """

    function: str
    parameters: ctypes.Structure
    label: str
    scratch_bytes: int = 0
    constants: tuple[torch.Tensor, ...] = ()


class _Entry(ctypes.Structure):
    _fields_ = [("run", ctypes.c_void_p), ("parameters", ctypes.c_void_p)]


class Program:
    """Steps that the library runs one after the other, without Python between them. Any thread may run it."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = tuple(steps)
        self.scratch_bytes = max((step.scratch_bytes for step in self.steps), default=0)
        self._entries = (_Entry * len(self.steps))(
            *[
                _Entry(library.address(f"step_{step.function}"), ctypes.addressof(step.parameters))
                for step in self.steps
            ]
        )

    def run(self, table: ctypes.Array[ctypes.c_void_p], scratch: int, threads: int) -> None:
        """table: addresses by entry. scratch: the address of ``scratch_bytes`` of memory, 64-byte aligned."""
        _run.without_tensors(self._entries, len(self.steps), table, scratch, threads, None)

    def timed(self, table: ctypes.Array[ctypes.c_void_p], scratch: int, threads: int) -> tuple[int, ...]:
        """The same; nanoseconds of each step."""
        times = (ctypes.c_int64 * len(self.steps))()
        _run(self._entries, len(self.steps), table, scratch, threads, times)
        return tuple(times)


_run = library.Function("engine_run", "plpplp")
