"""Clocks in milliseconds: wall time with the device drained, and on a GPU its own events."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

import torch

from nhwc.model import Measurement


class Clock:
    """Wall time of calls on a device, in milliseconds."""

    def __init__(self, device: str) -> None:
        self._device = torch.device(device)

    def time_ms(self, call: Callable[[], object]) -> float:
        """Milliseconds of one call, its result freed inside the timing as a step would free it."""
        self._drain()
        start = time.perf_counter_ns()
        call()
        self._drain()
        return (time.perf_counter_ns() - start) / 1e6

    def _drain(self) -> None:
        if self._device.type not in ("cpu", "meta"):
            torch.accelerator.synchronize(self._device)


class EventClock(Clock):
    """Time between two events on the current stream of a CUDA device, in milliseconds.

    Only the end event is waited for, never the whole device, so that other streams and captured graphs go on.
    """

    def time_ms(self, call: Callable[[], object]) -> float:
        """Milliseconds of one call on the GPU, from its first kernel's turn to the end of its last."""
        with torch.cuda.device(self._device):
            start, end = (torch.Event(str(self._device), enable_timing=True) for _ in range(2))
            start.record()
            call()
            end.record()
            end.synchronize()
        return float(start.elapsed_time(end))


def clock_for(device: torch.device) -> Clock:
    """The right clock for a device: events on CUDA, wall time elsewhere."""
    return EventClock(str(device)) if device.type == "cuda" else Clock(str(device))


def summarize(samples_ms: Sequence[float]) -> Measurement:
    """Median and interquartile range of samples in milliseconds; the range is 0 for a single sample."""
    ordered = sorted(samples_ms)
    if len(ordered) < 2:
        return Measurement(ordered[0], 0.0, 1)
    quartiles = statistics.quantiles(ordered, n=4, method="inclusive")
    return Measurement(statistics.median(ordered), quartiles[2] - quartiles[0], len(ordered))
