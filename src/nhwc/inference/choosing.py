"""The algorithm of every step is chosen by timing its candidates on buffers as the plan has them."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch

from nhwc.inference.measurements import Measurements
from nhwc.inference.native import ALIGNMENT_BYTES, Placed, Program, Step
from nhwc.inference.steps.registry import Candidate, Request

_REPEATS = 7
_LONG_ENOUGH_S = 0.03
_HOPELESS = 1.5
#: So many, if they took at most so many times the fastest's time alone, are timed again side by side.
_FINALISTS, _NEAR = 3, 1.3


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

    def choose(
        self,
        request: Request,
        found: Sequence[Candidate],
        table: ctypes.Array[ctypes.c_void_p],
        refill: Callable[[], None],
    ) -> Choice:
        """The fastest candidate, built. table: where the request's memory is; refill: puts numbers into its inputs.

        Measurements that lack a candidate are made anew. Where the budget is spent, the fastest of those that were
        measured is taken, and without any the first.
        """
        if len(found) == 1:
            return Choice(found[0].label, found[0].build(), {}, request.exact)
        times, built = self._times(request, found, table, refill)
        known = [each for each in found if each.label in times]
        best = min(known, key=lambda each: times[each.label]) if known else found[0]
        return Choice(best.label, built.get(best.label) or best.build(), times if known else {}, request.exact)

    def least_ms(
        self, request: Request, found: Sequence[Candidate], table: ctypes.Array[ctypes.c_void_p]
    ) -> float | None:
        """What the fastest candidate takes; None without candidates, and where the budget is spent."""
        times, _ = self._times(request, found, table, lambda: None)
        return min((times[each.label] for each in found if each.label in times), default=None)

    def _times(
        self,
        request: Request,
        found: Sequence[Candidate],
        table: ctypes.Array[ctypes.c_void_p],
        refill: Callable[[], None],
    ) -> tuple[dict[str, float], dict[str, Step]]:
        """Milliseconds by label as far as the budget allows, measured now or before; and steps built on the way."""
        key = request_key(request)
        times = self.measured.get(key) or {}
        if self.spent_s >= self.budget_s or {each.label for each in found} <= times.keys():
            return times, {}
        start = time.perf_counter()
        refill()
        times, built = self._timed(request, found, table)
        self.spent_s += time.perf_counter() - start
        self.measured.put(key, times)
        return times, built

    def _timed(
        self, request: Request, found: Sequence[Candidate], table: ctypes.Array[ctypes.c_void_p]
    ) -> tuple[dict[str, float], dict[str, Step]]:
        first: dict[str, float] = {}
        steps: dict[str, Step] = {}
        for candidate in found:
            step = candidate.build()
            least = min(first.values(), default=float("inf"))
            first[candidate.label] = _fastest([step], table, request.threads, _HOPELESS * least)[0]
            steps[candidate.label] = step
            # packed weights of all candidates at once could be many times the model
            near = sorted(first, key=first.__getitem__)[:_FINALISTS]
            steps = {label: each for label, each in steps.items() if label in near}
        if len(steps) > 1:
            labels = [label for label in steps if first[label] <= _NEAR * min(first.values())]
            again = _fastest([steps[label] for label in labels], table, request.threads, float("inf"))
            # only finalists were timed side by side: the others stay behind the slowest of them
            first.update(zip(labels, again, strict=True))
            for label in first.keys() - set(labels):
                first[label] = max(first[label], *again)
        return {label: 1000 * taken for label, taken in first.items()}, steps


def _fastest(steps: Sequence[Step], table: ctypes.Array[ctypes.c_void_p], threads: int, hopeless: float) -> list[float]:
    """The least of several runs of each in seconds, in turn so that a slow moment of the machine meets all.

    Fewer runs where they are long, or where none comes under ``hopeless``.
    """
    programs = [Program([step]) for step in steps]
    memory = torch.empty(max(step.scratch_bytes for step in steps) + ALIGNMENT_BYTES, dtype=torch.uint8, device="cpu")
    scratch = -(-memory.data_ptr() // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    least, total = [float("inf")] * len(steps), 0.0
    for turn in range(_REPEATS):
        for place, program in enumerate(programs):
            start = time.perf_counter()
            program.run(table, scratch, threads)
            taken = time.perf_counter() - start
            least[place], total = min(least[place], taken), total + taken
        if turn >= 1 and (min(least) > hopeless or total > _LONG_ENOUGH_S * len(steps)):
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
