"""Finds the compiled library that this processor can run, and calls its functions with tensors.

Private interface, read from torch 2.11 to 2.14: ``torch_parallel_for``, exported by libtorch_cpu as part of its stable
C interface. Where it is missing, the kernels run on the calling thread alone, and ``status`` says so.

Environment variables: NHWC_NATIVE=0 leaves the library out, NHWC_NATIVE=FOLDER takes the libraries from there;
NHWC_INSTRUCTION_SET picks one of them, in place of the best that this processor has.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from nhwc.kernels.native.build import instruction_sets, library_name

#: What the sources export must be what this package calls; see library.cpp.
INTERFACE = 6

_FOLDER = Path(__file__).parent
_CODES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}
_TYPES: dict[str, Any] = {
    "i": ctypes.c_int,
    "l": ctypes.c_int64,
    "d": ctypes.c_double,
    "p": ctypes.c_void_p,
}


@dataclass(frozen=True)
class Status:
    """instruction_set: that of the library in use, empty where there is none. reason: why there is none, or a limit."""

    instruction_set: str
    reason: str


def dtype_code(dtype: torch.dtype) -> int | None:
    """How the library names a floating-point type; None for one that it has no kernels for."""
    return _CODES.get(dtype)


def is_available() -> bool:
    """Whether compiled kernels can run in this process."""
    return _loaded()[0] is not None


def status() -> Status:
    """Which library is in use, or why none is."""
    return _loaded()[1]


class Function:
    """One exported function, found in the library at its first call.

    signature: a letter per argument: i (int), l (int64), d (double), p (a pointer: a tensor's data, an array made
    by ``ctypes``, the address of one int64, or None).
    """

    def __init__(self, name: str, signature: str) -> None:
        self.name = name
        self.signature = signature
        self._call: Any = None

    def __call__(self, *arguments: Any) -> None:
        self.without_tensors(*[each.data_ptr() if isinstance(each, torch.Tensor) else each for each in arguments])

    def without_tensors(self, *arguments: Any) -> None:
        """The same call, with no look for tensors among the arguments."""
        if self._call is None:
            self._call = self._found()
        self._call(*arguments)

    def _found(self) -> Any:
        function = _exported(self.name)
        function.argtypes = [_TYPES[letter] for letter in self.signature]
        function.restype = None
        return function


def address(name: str) -> int:
    """The address of an exported function, for compiled code to call; RuntimeError where there is no library."""
    return ctypes.cast(_exported(name), ctypes.c_void_p).value or 0


def _exported(name: str) -> Any:
    library, found = _loaded()
    if library is None:
        raise RuntimeError(f"nhwc_{name} was called without the compiled library: {found.reason}")
    return getattr(library, f"nhwc_{name}")


@cache
def _loaded() -> tuple[ctypes.CDLL | None, Status]:
    common = next(iter(instruction_sets()))
    baseline, reason = _open(common)
    if baseline is None:
        return None, Status("", reason)
    baseline.nhwc_best_instruction_set.restype = ctypes.c_char_p
    best = os.environ.get("NHWC_INSTRUCTION_SET") or baseline.nhwc_best_instruction_set().decode()
    library, reason = (baseline, "") if best == common else _open(best)
    if library is None:
        library, best = baseline, common
    threads = _torch_threads()
    if threads is None:
        reason = f"torch {torch.__version__} does not export torch_parallel_for: the kernels run on one thread"
    library.nhwc_use_threads.argtypes = [ctypes.c_void_p]
    library.nhwc_use_threads(threads)
    return library, Status(best, reason)


def _open(instruction_set: str) -> tuple[ctypes.CDLL | None, str]:
    chosen = os.environ.get("NHWC_NATIVE", "")
    if chosen == "0":
        return None, "the environment variable NHWC_NATIVE=0 leaves it out"
    path = (Path(chosen) if chosen else _FOLDER) / library_name(instruction_set)
    if not path.exists():
        where = f"in {chosen}, which NHWC_NATIVE names" if chosen else "here"
        return None, f"there is no {path.name} {where}; install nhwc again where there is a C++ compiler"
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        return None, f"{path.name} cannot be loaded: {error}"
    library.nhwc_interface.restype = ctypes.c_int64
    if library.nhwc_interface() != INTERFACE:
        return None, f"{path.name} was built from other sources; install nhwc again"
    return library, ""


def _torch_threads() -> int | None:
    try:
        torch_library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        return ctypes.cast(torch_library.torch_parallel_for, ctypes.c_void_p).value
    except (OSError, AttributeError):
        return None
