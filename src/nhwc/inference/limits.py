"""What this machine can do, measured: multiplications with additions in registers, and copies of several sizes."""

from __future__ import annotations

import ctypes
import time

import torch

from nhwc.engine_report import CopySpeed, Limits
from nhwc.kernels.native import library

_peak = library.Function("engine_peak", "llp")
_ROUNDS = 100_000
_REPEATS = 12
_COPIED_BYTES = tuple(1 << power for power in (16, 18, 20, 22, 24, 26))


def measured_limits(threads: int) -> Limits:
    """The best of several short runs each, on so many of torch's threads; takes about a quarter of a second."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return Limits(threads, _flop_per_s(threads), tuple(_copied(size) for size in _COPIED_BYTES))
    finally:
        torch.set_num_threads(before)


def _flop_per_s(threads: int) -> float:
    best, operations = 0.0, ctypes.c_int64()
    for _ in range(_REPEATS):
        start = time.perf_counter()
        _peak(threads, _ROUNDS, ctypes.addressof(operations))
        best = max(best, operations.value / (time.perf_counter() - start))
    return best


def _copied(size_bytes: int) -> CopySpeed:
    """size_bytes: read and written together."""
    source = torch.ones(size_bytes // 8, dtype=torch.float32, device="cpu")
    target = torch.empty_like(source)
    turns = max(1, (1 << 24) // size_bytes)
    best = 0.0
    for _ in range(_REPEATS):
        start = time.perf_counter()
        for _ in range(turns):
            target.copy_(source)
        best = max(best, turns * size_bytes / (time.perf_counter() - start))
    return CopySpeed(size_bytes, best)
