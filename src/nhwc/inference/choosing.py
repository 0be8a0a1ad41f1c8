"""The algorithm of every step is chosen by timing its candidates on buffers as the plan has them."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import torch

from nhwc.inference.measurements import Measurements
from nhwc.inference.native import ALIGNMENT_BYTES, Placed, Program, Step
from nhwc.inference.steps.registry import Candidate, Request

Progress = Callable[[str, int, int], None]

_REPEATS = 7
_LONG_ENOUGH_S = 0.004
_HOPELESS = 1.5


@dataclass(frozen=True)
class Choice:
    """What was chosen for a request. times_ms: by label, of what was timed; empty where only one candidate was there
    or the budget was spent. exact: whether the request asked for that.
    """

    label: str
    step: Step
    times_ms: dict[str, float]
    exact: bool


@dataclass
class Chooser:
    """Chooses for many requests within a budget. measured: what earlier engines on this machine measured."""

    measured: Measurements
    budget_s: float
    spent_s: float = 0.0
    known: dict[str, dict[str, float]] = field(default_factory=dict)

    def choose(
        self,
        request: Request,
        found: Sequence[Candidate],
        table: ctypes.Array[ctypes.c_void_p],
        refill: Callable[[], None],
    ) -> Choice:
        """The fastest candidate, built. table: where the request's memory is; refill: puts numbers into its inputs.

        The first candidate is taken where the budget is spent.
        """
        if len(found) == 1:
            return Choice(found[0].label, found[0].build(), {}, request.exact)
        key = request_key(request)
        times = self.known.get(key) or self.measured.get(key)
        built: dict[str, Step] = {}
        if not times or not set(times) & {each.label for each in found}:
            if self.spent_s >= self.budget_s:
                return Choice(found[0].label, found[0].build(), {}, request.exact)
            start = time.perf_counter()
            refill()
            times, built = self._timed(request, found, table)
            self.spent_s += time.perf_counter() - start
            self.measured.put(key, times)
        self.known[key] = times
        label = min((each.label for each in found if each.label in times), key=lambda each: times[each])
        step = built.get(label) or next(each for each in found if each.label == label).build()
        return Choice(label, step, times, request.exact)

    def least_ms(
        self, request: Request, found: Sequence[Candidate], table: ctypes.Array[ctypes.c_void_p]
    ) -> float | None:
        """What the fastest candidate takes; None without candidates, and where the budget is spent."""
        key = request_key(request)
        times = self.known.get(key) or self.measured.get(key)
        if not times and found and self.spent_s < self.budget_s:
            start = time.perf_counter()
            times, _ = self._timed(request, found, table)
            self.spent_s += time.perf_counter() - start
            self.measured.put(key, times)
            self.known[key] = times
        return min((times[each.label] for each in found if each.label in times), default=None) if times else None

    def _timed(
        self, request: Request, found: Sequence[Candidate], table: ctypes.Array[ctypes.c_void_p]
    ) -> tuple[dict[str, float], dict[str, Step]]:
        best, times, kept = float("inf"), {}, {}
        for candidate in found:
            step = candidate.build()
            taken = _fastest(step, table, request.threads, best)
            times[candidate.label] = 1000 * taken
            if taken < best:
                best, kept = taken, {candidate.label: step}
        return times, kept


def _fastest(step: Step, table: ctypes.Array[ctypes.c_void_p], threads: int, best: float) -> float:
    """The least of several runs in seconds; fewer where it cannot come under ``best``."""
    program = Program([step])
    memory = torch.empty(step.scratch_bytes + ALIGNMENT_BYTES, dtype=torch.uint8)
    scratch = -(-memory.data_ptr() // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    least, total = float("inf"), 0.0
    for turn in range(_REPEATS):
        start = time.perf_counter()
        program.run(table, scratch, threads)
        taken = time.perf_counter() - start
        least, total = min(least, taken), total + taken
        if turn >= 1 and (least > _HOPELESS * best or total > _LONG_ENOUGH_S * _REPEATS):
            break
    return least


def request_key(request: Request) -> str:
    """A text that is alike for requests that take the same time: sizes and strides, no addresses and no weights."""
    parts = [_described(request.operation), *[_lying(each) for each in request.inputs], _lying(request.output)]
    parts.append(_described(request.fused))
    parts.append("" if request.addend is None else _lying(request.addend))
    return "|".join([*parts, str(request.threads), "exact" if request.exact else ""])


def _lying(placed: Placed) -> str:
    return f"{placed.shape}{placed.strides}".replace(" ", "")


def _described(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return str(tuple(value.shape))
    if is_dataclass(value):
        inner = ",".join(_described(getattr(value, each.name)) for each in fields(value))
        return f"{type(value).__name__}({inner})"
    if isinstance(value, tuple):
        return "(" + ",".join(map(_described, value)) + ")"
    return str(value).replace(" ", "")
