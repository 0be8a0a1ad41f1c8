"""The time of a whole step, unrecorded."""

from __future__ import annotations

from collections.abc import Callable

from nhwc.measure.clock import Clock, summarize
from nhwc.model import Measurement


def time_step(step: Callable[[], object], device: str, repeats: int) -> Measurement:
    """Median and interquartile range of ``repeats`` runs after one that warms up."""
    clock = Clock(device)
    clock.time_ms(step)
    return summarize([clock.time_ms(step) for _ in range(repeats)])
