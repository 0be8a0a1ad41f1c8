"""Costs for a plan: kept from earlier runs on this machine, measured within a budget, estimated where neither is."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence

import torch

from nhwc.kept_times import KeptTimes, folder
from nhwc.measure import call_key, time_calls
from nhwc.model import Call, Environment
from nhwc.planner import Cost, estimate_ms
from nhwc.planner.estimates import moved_bytes
from nhwc.progress import Progress

_FORMAT, _VERSION = "nhwc operator times", 1
#: A run that is killed loses what it measured in these seconds.
_SAVE_EVERY_S = 5.0


def kept(environment: Environment) -> KeptTimes:
    """The times that are kept for a device, processor, build of torch, instruction set and number of threads."""
    machine = ", ".join(
        (
            environment.device,
            environment.processor,
            f"torch {environment.torch} {torch.version.git_version}",
            torch.backends.cpu.get_cpu_capability(),
            f"{environment.threads} threads",
        )
    )
    return KeptTimes(_FORMAT, _VERSION, "operators", machine, folder())


class Costs:
    """Milliseconds of calls on this machine. kernels: names of those of nhwc.kernels that are on.

    Calls of which every output is a view, and those without operands, cost nothing.
    """

    def __init__(self, times: KeptTimes, kernels: Sequence[str]) -> None:
        self._times = times
        self._opening = f"{','.join(kernels)} " if kernels else ""
        self._estimates: dict[str, float] = {}

    def find(self, calls: Iterable[Call], repeats: int, budget_s: float, progress: Progress) -> None:
        """Measure those of ``calls`` that are not kept, those that move most bytes in a step first; estimate the rest.

        What was measured is kept, also where the measuring ends in an exception.
        """
        distinct: dict[str, Call] = {}
        weights: dict[str, int] = {}
        for call in filter(_costs_time, calls):
            key = self._key(call)
            distinct.setdefault(key, call)
            weights[key] = weights.get(key, 0) + moved_bytes(call)
        missing = sorted((key for key in distinct if self._known(key) is None), key=lambda key: -weights[key])
        saved_s = time.monotonic()

        def measured(call: Call, ms: float | None) -> None:
            nonlocal saved_s
            if ms is not None:
                self._times.put(self._key(call), {"ms": ms})
            if time.monotonic() - saved_s > _SAVE_EVERY_S:
                self._times.save()
                saved_s = time.monotonic()

        try:
            time_calls([distinct[key] for key in missing], repeats, budget_s, measured, progress)
        finally:
            self._times.save()
        known = [(call, ms) for key, call in distinct.items() if (ms := self._known(key)) is not None]
        self._estimates = {key: estimate_ms(call, known) for key, call in distinct.items() if self._known(key) is None}

    def of(self, calls: Iterable[Call]) -> tuple[float, bool]:
        """Milliseconds of ``calls`` together, and whether any was estimated. KeyError for calls never given to find."""
        total, estimated = 0.0, False
        for key in map(self._key, filter(_costs_time, calls)):
            ms = self._known(key)
            total += self._estimates[key] if ms is None else ms
            estimated |= ms is None
        return total, estimated

    def in_formats(self, contiguous: Iterable[Call], channels_last: Iterable[Call]) -> Cost:
        """What is done by some calls in contiguous, and by others in channels last."""
        (one_ms, one), (other_ms, other) = self.of(contiguous), self.of(channels_last)
        return Cost((one_ms, other_ms), one or other)

    def _known(self, key: str) -> float | None:
        ms = (self._times.get(key) or {}).get("ms")
        return ms if ms is not None and 0.0 <= ms < math.inf else None  # a file may have been edited

    def _key(self, call: Call) -> str:
        return self._opening + call_key(call)


def _costs_time(call: Call) -> bool:
    return not call.view and bool(call.inputs)
