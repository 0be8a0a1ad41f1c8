"""``python -m nhwc.api.surveying_child``: the process in which a survey runs the operators.

Questions and answers are those of nhwc.machine.child: {"list": filter} → {"names": [...], "notes": [...]}, and
{"operator": name, "group": group, "mode": ..., "dtypes": [...], "device": ..., "speed": "none"|"own"|"all", "only":
[[dims, dtype], ...] or nothing for all} → [row, ...].
"""

from __future__ import annotations

import contextlib
import functools
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import torch

from nhwc.api.surveying_kernels import serving
from nhwc.kernels import native, use
from nhwc.machine.child import serve
from nhwc.measure.clock import clock_for
from nhwc.measure.runner import Contender, Limits, run_rounds
from nhwc.measure.stats import FEWEST_PAIRS, paired_ratio, widened
from nhwc.model import InnerCopy
from nhwc.operators import Mode, OperatorRow, Speed
from nhwc.ops.case import Case, tensors_of
from nhwc.ops.instruments import Instruments, Operator
from nhwc.ops.listing import operators
from nhwc.ops.probe import probe
from nhwc.ops.samples import OwnOperator
from nhwc.recorder.inner import KernelProfiler, marker
from nhwc.schema.typed import plain

_LONGEST_MS = 200.0
_MARGIN = 0.05
_LIMITS = Limits(precision=0.03, budget_s=2.5, least_rounds=8, most_rounds=10)  # six rounds of the slowest that is run


class ProfilerWatch:
    """The recorder's own profiler as the probe sees it."""

    def __init__(self, device: str) -> None:
        self._profiler = KernelProfiler(torch.device(device))

    def running(self) -> AbstractContextManager[None]:
        return self._profiler.running()

    def mark(self, index: int) -> AbstractContextManager[object]:
        return marker(index)

    def copies(self, index: int) -> Sequence[InnerCopy]:
        inside = self._profiler.insides.get(index)
        return [] if inside is None else [copy for copy, _, _ in inside.copies]


def race(case: Case, training: bool) -> Speed | str:
    """How fast a case is in channels last, forward or forward and backward; or why it was not measured."""
    clock = clock_for(_device_of(case))
    try:
        contenders = [
            Contender(name, _step(case.formatted(channels_last=name == "channels_last"), training=training))
            for name in ("contiguous", "channels_last")
        ]
        for contender in contenders:
            contender.step()
            if clock.time_ms(contender.step) > _LONGEST_MS:
                return f"a step takes more than {_LONGEST_MS:.0f} ms"
        run_rounds(contenders, "contiguous", clock, _LIMITS)
    except (RuntimeError, TypeError, ValueError, NotImplementedError, IndexError):
        return "it does not run at a real size"
    first, second = (each.samples_ms for each in contenders)
    if len(first) < FEWEST_PAIRS or len(first) != len(second):
        return f"fewer than {FEWEST_PAIRS} rounds fit into {_LIMITS.budget_s} s"
    ratio = widened(paired_ratio(first, second), _MARGIN)
    shape = tuple(next(tensor for tensor in case.tensors if tensor.is_floating_point()).shape)
    for tensor in case.pictures[:1]:
        shape = tuple(tensor.shape)
    return Speed(shape, ratio, sorted(first)[len(first) // 2], sorted(second)[len(second) // 2])


def _step(ready: Case, *, training: bool) -> Callable[[], object]:
    if not training:

        def forward() -> object:
            with torch.no_grad():
                return ready()

        return forward
    inputs = [tensor for tensor in ready.tensors if tensor.requires_grad]
    outputs = [each for each in tensors_of(ready()) if each.requires_grad]
    gradients = [torch.ones_like(each) for each in outputs]

    def both() -> object:
        written = [each for each in tensors_of(ready()) if each.requires_grad]
        return torch.autograd.grad(written, inputs, gradients, allow_unused=True)

    return both


def _device_of(case: Case) -> torch.device:
    return next(tensor.device for tensor in case.tensors if tensor.is_floating_point())


class Process:
    """Answers the questions of one survey."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Operator] = {}
        self._notes: list[str] = []

    def answer(self, question: Mapping[str, Any]) -> object:
        if "threads" in question:
            torch.set_num_threads(question["threads"])
        if "list" in question or not self._known:
            found, self._notes = operators(question.get("list", ""))
            if not native.is_available():
                self._notes.append(
                    f"kernels are named as they serve without the compiled library: {native.status().reason}"
                )
            self._known = {(each.name, each.group): each for each in found}
        if "list" in question:
            return {"names": list(self._known), "notes": self._notes}
        return [plain(row) for row in self._rows(question)]

    def _rows(self, question: Mapping[str, Any]) -> list[OperatorRow]:
        operator = self._known[question["operator"], question["group"]]
        mode, dtypes, device = Mode(question["mode"]), question["dtypes"], question["device"]
        # measuring and compiling would take hours for every dtype
        first = dtypes[:1]
        is_timed = question["speed"] == "all" or (question["speed"] == "own" and isinstance(operator, OwnOperator))
        rows = [
            _row(operator, mode, dims, dtype, device, is_timed=is_timed and dtype in first)
            for dims in (2, 3)
            for dtype in (first if mode == Mode.COMPILED else dtypes)
            if "only" not in question or [dims, dtype] in question["only"]
        ]
        return [row for row in rows if row is not None]


def _row(operator: Operator, mode: Mode, dims: int, dtype: str, device: str, *, is_timed: bool) -> OperatorRow | None:
    instruments = Instruments(
        functools.partial(ProfilerWatch, device), race if is_timed else None, trains=isinstance(operator, OwnOperator)
    )
    if mode == Mode.EAGER and torch.device(device).type == "cpu":
        instruments = replace(instruments, serving=serving)  # only a CPU's operators have kernels
    with use() if mode == Mode.KERNELS else contextlib.nullcontext():
        return probe(operator, dims, getattr(torch, dtype), device, instruments, mode)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.argv = sys.argv[:1]  # torch's test package reads the command line
    serve(Process().answer)
