"""Every call of the compiled library on copies of its operands between two pages that nothing may touch.

As a plugin, ``pytest -p kernels.guarding``, it guards every test of the run: a kernel's Python side stays as it is, and
each native call runs twice, on operands that begin exactly behind a forbidden page and on ones that end exactly before
one; results are copied back from the second. One element too far is a segmentation fault. What lies between an operand
and the page on its other side is filled with bytes that make a NaN, and must be found unchanged.
"""

from __future__ import annotations

import ctypes
import mmap
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch

from nhwc.kernels.native import Function

FORBIDDEN = 0  # PROT_NONE
FILLING = 0xFF

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
calls: Counter[str] = Counter()


class Guarded:
    """A copy of ``size`` bytes from ``source`` that touches the forbidden page behind it, or the one before it."""

    def __init__(self, source: int, size: int, at_end: bool) -> None:
        room = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        self._memory = mmap.mmap(-1, room + 2 * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE)
        self._handle = ctypes.c_char.from_buffer(self._memory)
        self._first = ctypes.addressof(self._handle) + mmap.PAGESIZE
        self._slack = (room - size, 0) if at_end else (0, room - size)
        self.source, self.size = source, size
        self.address = self._first + self._slack[0]
        ctypes.memset(self._first, FILLING, room)
        ctypes.memmove(self.address, source, size)
        self._before = self.bytes()
        for page in (self._first - mmap.PAGESIZE, self._first + room):
            if _libc.mprotect(page, mmap.PAGESIZE, FORBIDDEN) != 0:
                raise OSError(ctypes.get_errno(), "mprotect")

    def bytes(self) -> bytes:
        return ctypes.string_at(self.address, self.size)

    def is_written(self) -> bool:
        return self.bytes() != self._before

    def is_clean(self) -> bool:
        """Whether nothing was written beside the operand."""
        before, behind = self._slack
        beside = ctypes.string_at(self._first, before) + ctypes.string_at(self.address + self.size, behind)
        return beside.count(FILLING) == len(beside)

    def copy_back(self) -> None:
        ctypes.memmove(self.source, self.address, self.size)


def extent(value: Any) -> tuple[int, int] | None:
    """Where an argument's bytes begin, and how many there are to its last element; None for no operand."""
    if isinstance(value, torch.Tensor):
        last = sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
        return value.data_ptr(), (last + 1) * value.element_size() if value.numel() else 0
    if isinstance(value, ctypes.Array):
        return ctypes.addressof(value), ctypes.sizeof(value)
    return None if value is None else (value, ctypes.sizeof(ctypes.c_int64))


def joined_extents(arguments: tuple[Any, ...]) -> list[tuple[int, int]]:
    """Those of join_channels' operands, which arrive as addresses: the last row ends with its width."""
    element, pointers, steps, widths, count, _to, rows = arguments
    return [(pointers[k], ((rows - 1) * steps[k] + widths[k]) * element) for k in range(count)]


#: By function: the extents of the operands in each array of pointers.
BEHIND_POINTERS: dict[str, Callable[[tuple[Any, ...]], list[tuple[int, int]]]] = {"join_channels": joined_extents}


class Operands:
    """Guarded copies of all operands of one call; those that are one operand stay one."""

    def __init__(self, function: Function, arguments: tuple[Any, ...], at_end: bool) -> None:
        self._copies: dict[tuple[int, int], Guarded] = {}
        self._name, self._at_end = function.name, at_end
        self.arguments = [
            self._guarded(each, arguments) if letter == "p" else each
            for letter, each in zip(function.signature, arguments, strict=True)
        ]

    def _guarded(self, value: Any, arguments: tuple[Any, ...]) -> Any:
        if isinstance(value, ctypes.Array) and value._type_ is ctypes.c_void_p:
            addresses = [self._copy(*each) for each in BEHIND_POINTERS[self._name](arguments)]
            return (ctypes.c_void_p * len(addresses))(*addresses)
        where = extent(value)
        return value if where is None else self._copy(*where)

    def _copy(self, source: int, size: int) -> int:
        key = source, size
        if key not in self._copies:
            self._copies[key] = Guarded(source, size, self._at_end)
        return self._copies[key].address

    def finish(self) -> None:
        copies = list(self._copies.values())
        assert all(each.is_clean() for each in copies), f"{self._name} writes beside an operand"
        if not self._at_end:
            return
        for each in filter(Guarded.is_written, copies):
            beyond = (other for other in copies if other is not each)
            apart = (o.source >= each.source + each.size or o.source + o.size <= each.source for o in beyond)
            assert all(apart), f"{self._name} writes an operand that overlaps another"
            each.copy_back()


def install() -> Callable[[], None]:
    """Guard every native call from here on; the result puts the plain calls back."""
    plain = Function.__call__

    def guarded(self: Function, *arguments: Any) -> None:
        calls[self.name] += 1
        for at_end in (False, True):
            operands = Operands(self, arguments, at_end)
            plain(self, *operands.arguments)
            operands.finish()

    Function.__call__ = guarded  # type: ignore[method-assign]

    def remove() -> None:
        Function.__call__ = plain  # type: ignore[method-assign]

    return remove


def pytest_configure(config: pytest.Config) -> None:
    config.add_cleanup(install())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for name, count in sorted(calls.items()):
        terminalreporter.write_line(f"guarded {name}: {count} calls")
