"""torch's profiler, started and stopped without the lines that its library prints."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from nhwc.recorder.output import captured

_KINETO_NOISE = (
    b"SyncActivityProfilerHandler",
    b"ActivityProfilerController",
    b"DeviceProperties.cpp",
    b"CPUAllocator.cpp",
    b"kineto",
    b"Kineto",
    b"CuptiActivity",
)


@contextlib.contextmanager
def profiling(**options: Any) -> Iterator[torch.profiler.profile]:
    """Profile the body, with options of ``torch.profiler.profile``; the results are there when it has ended."""
    profile = torch.profiler.profile(acc_events=False, **options)
    with captured(2, without_noise), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch 2.11 warns that events of one cycle are kept, which is what we want
        profile.start()
    try:
        yield profile
    finally:
        with captured(2, without_noise):
            profile.stop()


def without_noise(output: bytes) -> bytes:
    """What was printed, less the lines that the profiler and the allocator it watches print."""
    lines = output.splitlines(keepends=True)
    return b"".join(line for line in lines if not any(word in line for word in _KINETO_NOISE))
