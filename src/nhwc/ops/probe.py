"""Runs the cases of one operator in both formats and makes a row of the table of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch

from nhwc.model import InnerCopy
from nhwc.operators import Fault, Handling, OperatorRow, Pass, Speed, Truth
from nhwc.ops.attempt import DIRECTIONS, Direction, attempt, without_gradients
from nhwc.ops.case import Case, in_dtype
from nhwc.ops.copies import Copied, copied
from nhwc.ops.values import Agreement, agreement, worst

_MOST_COMPILED = 2
#: What a direction writes, for people.
_WRITTEN = {"forward": "output", "backward": "gradient", "expanded": "gradient of an expanded one"}


class Operator(Protocol):
    """What can be surveyed: torch's database and our own samples are."""

    @property
    def name(self) -> str: ...
    @property
    def group(self) -> str: ...
    @property
    def is_comparable(self) -> bool: ...
    def cases(self, dims: int, dtype: torch.dtype, device: str) -> list[Case]: ...
    def edges(self, cases: Sequence[Case], dims: int) -> Iterator[tuple[str, Case]]: ...
    def large(self, cases: Sequence[Case], dims: int) -> Case | None: ...


class Watch(Protocol):
    """Sees the copies that run inside operators: one recording of several marked calls."""

    def running(self) -> AbstractContextManager[object]: ...
    def mark(self, index: int) -> AbstractContextManager[object]: ...
    def copies(self, index: int) -> Sequence[InnerCopy]: ...


#: Measures a case in both formats: (case, with its backward pass) → Speed, or None where it does not run.
Race = Callable[[Case, bool], Speed | None]


@dataclass(frozen=True)
class Instruments:
    """What the probe looks through: one watch for each row, and what measures, where speed is asked for."""

    watch: Callable[[], Watch]
    race: Race | None = None


@dataclass
class _Run:
    """One case in both formats."""

    case: Case
    contiguous: dict[str, Direction]
    last: dict[str, Direction]
    marks: dict[tuple[bool, str], int] = field(default_factory=dict)


def probe(
    operator: Operator, dims: int, dtype: torch.dtype, device: str, instruments: Instruments, *, compiled: bool
) -> OperatorRow | None:
    """The row of an operator; None where it takes no picture (or volume) of that dtype.

    The inputs are in channels last and, to compare, contiguous. Changes torch's seed.
    """
    cases = operator.cases(dims, dtype, device)
    if compiled:
        cases = [replace(case, run=_compiled(case.run)) for case in cases[:_MOST_COMPILED]]
    watch = instruments.watch()
    with watch.running():
        runs = [run for case in cases if (run := _both(case, watch)) is not None]
    if not runs:
        return None
    verdicts = [_judged(run, compiled=compiled) for run in runs] if operator.is_comparable else []
    judged = worst([verdict for verdict, _ in verdicts])
    passes = {name: _pass(name, runs, watch) for name in DIRECTIONS}
    forward = passes["forward"]
    assert forward is not None
    row = OperatorRow(
        operator.name,
        operator.group,
        dims,
        str(dtype).removeprefix("torch."),
        device,
        "compiled" if compiled else "eager",
        len(runs),
        forward,
        judged.truth,
        passes["backward"],
        passes["expanded"],
        judged.error,
        judged.contiguous_error,
        faults=_worst_of_each([fault for _, found in verdicts for fault in found]),
    )
    return row if compiled else _with_edges_and_speed(row, operator, [run.case for run in runs], instruments)


def _with_edges_and_speed(
    row: OperatorRow, operator: Operator, cases: Sequence[Case], instruments: Instruments
) -> OperatorRow:
    if operator.is_comparable:
        found = {label: _edge(case) for label, case in operator.edges(cases, row.dims)}
        compared = {label: each for label, each in found.items() if each and each[0] != Truth.UNCOMPARED}
        wrong = {label: faults for label, (truth, faults) in compared.items() if truth == Truth.WRONG}
        faults = (replace(fault, edge=label) for label, each in wrong.items() for fault in each[:1])
        row = replace(row, edges=tuple(compared), wrong_edges=tuple(wrong), faults=(*row.faults, *faults))
    race, large = instruments.race, None
    if race is not None:
        with contextlib.suppress(Exception):  # arguments that no such size fits
            large = operator.large(cases, row.dims)
    if race is None or large is None:
        return row
    speed = race(large, False)
    training = race(large, True) if speed is not None and row.backward is not None else None
    return replace(row, speed=speed, training_speed=training)


def _both(case: Case, watch: Watch) -> _Run | None:
    """A case in both formats; None where it raises on contiguous inputs, so that nothing can be said of it."""
    for each in (case, without_gradients(case)):
        run = _Run(each, {}, {})
        run.contiguous = attempt(each, channels_last=False, mark=_marker(run, watch, False))
        if not run.contiguous["forward"].error:
            run.last = attempt(each, channels_last=True, mark=_marker(run, watch, True))
            return run
    return None


_next_mark = iter(range(1 << 62))


def _marker(run: _Run, watch: Watch, channels_last: bool) -> Callable[[str], AbstractContextManager[object]]:
    def mark(direction: str) -> AbstractContextManager[object]:
        index = run.marks[channels_last, direction] = next(_next_mark)
        return watch.mark(index)

    return mark


def _pass(name: str, runs: Sequence[_Run], watch: Watch) -> Pass | None:
    """One direction over all runs; None where no run has it."""
    having = [run for run in runs if name in run.contiguous and not run.contiguous[name].error]
    if not having:
        return None
    kept = lost = viewed = refused = 0
    inside, before = Copied(), Copied()
    example = ""
    for run in having:
        last = run.last.get(name) or run.last["forward"]
        if last.error:
            refused += 1
            example = example or f"{_shapes(run.case)}: {last.error}"
            continue
        kept += last.handlings.count(Handling.KEEPS)
        viewed += last.handlings.count(Handling.VIEW)
        lost += last.handlings.count(Handling.LOSES)
        inside += copied(watch.copies(run.marks[True, name]))
        before += copied(watch.copies(run.marks[False, name]))
        example = example or _lost_example(run.case, last)
    extra = inside.nbytes > before.nbytes
    handling = _handling(kept, lost, viewed, refused, len(having), extra)
    return Pass(
        handling, kept, lost, viewed, refused, inside.nbytes, before.nbytes, inside.names if extra else (), example
    )


def _handling(kept: int, lost: int, viewed: int, refused: int, runs: int, extra: bool) -> Handling:
    if refused == runs:
        return Handling.REFUSES
    if lost or refused:
        return Handling.SOMETIMES if kept or (refused and not lost) else Handling.LOSES
    if extra:
        return Handling.COPIES
    if kept:
        return Handling.KEEPS
    return Handling.VIEW if viewed else Handling.NO_FORMAT


def _lost_example(case: Case, last: Direction) -> str:
    written = [tensor for tensor in last.tensors if tensor is not None or len(last.tensors) == len(last.handlings)]
    for tensor, handling in zip(written, last.handlings, strict=False):
        if handling == Handling.LOSES and tensor is not None:
            return f"{_shapes(case)}: {tuple(tensor.shape)} with strides {tuple(tensor.stride())}"
    return ""


def _shapes(case: Case) -> str:
    return " ".join(str(tuple(tensor.shape)) for tensor in case.tensors[:3])


def _judged(run: _Run, *, compiled: bool) -> tuple[Agreement, list[Fault]]:
    """Values and gradients of a run against float64 and contiguous; compiled runs against contiguous alone.

    With what is wrong, in the order of the directions.
    """
    if run.last["forward"].error:
        return Agreement(Truth.UNCOMPARED), []
    exact = None if compiled else _reference(run.case)
    found = {
        name: agreement(run.contiguous[name].tensors, run.last[name].tensors, exact.get(name) if exact else None)
        for name in DIRECTIONS
        if name in run.contiguous and name in run.last and not (run.contiguous[name].error or run.last[name].error)
    }
    together = worst(list(found.values()))
    if together.truth == Truth.WRONG and run.contiguous["forward"].drew:
        return Agreement(Truth.RANDOM), []
    shapes = _shapes(run.case)
    return together, [
        Fault(_WRITTEN[name], shapes, "", each.error, each.contiguous_error, each.reference)
        for name, each in found.items()
        if each.truth == Truth.WRONG
    ]


def _worst_of_each(faults: Sequence[Fault]) -> tuple[Fault, ...]:
    """Of the faults of all samples the one with the largest error in each direction."""
    ordered = sorted(faults, key=lambda fault: fault.error or 0.0)
    largest = {fault.what: fault for fault in ordered}
    return tuple(largest[what] for what in _WRITTEN.values() if what in largest)


def _reference(case: Case) -> dict[str, list[torch.Tensor | None]] | None:
    """Every direction's tensors in float64; None where the operator does not run in it."""
    wide = attempt(case.changed(lambda tensor: in_dtype(tensor, torch.float64)), channels_last=False, mark=_unmarked)
    if wide["forward"].error:
        return None
    return {name: direction.tensors for name, direction in wide.items() if not direction.error}


def _edge(case: Case) -> tuple[Truth, list[Fault]] | None:
    """Whether a case of another shape agrees, and what does not; None where contiguous inputs are refused too."""
    contiguous = attempt(case, channels_last=False, mark=_unmarked)
    if contiguous["forward"].error:
        return None
    last = attempt(case, channels_last=True, mark=_unmarked)
    raised = [
        Fault(_WRITTEN[name], _shapes(case), raised=direction.error)
        for name, direction in last.items()
        if direction.error and name in contiguous and not contiguous[name].error
    ]
    if raised:
        return Truth.WRONG, raised
    verdict, faults = _judged(_Run(case, contiguous, last), compiled=False)
    return verdict.truth, faults


def _unmarked(_direction: str) -> AbstractContextManager[object]:
    return contextlib.nullcontext()


def _compiled(run: Callable[..., Any]) -> Callable[..., Any]:
    torch._dynamo.reset()
    compiled: Callable[..., Any] = torch.compile(run, dynamic=False)
    return compiled
