"""Runs the cases of one operator in both formats and makes a row of the table of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch

from nhwc.model import InnerCopy
from nhwc.operators import Handling, OperatorRow, Pass, Speed, Truth
from nhwc.ops.attempt import DIRECTIONS, Direction, attempt, without_gradients
from nhwc.ops.case import Case, in_dtype
from nhwc.ops.copies import Copied, copied
from nhwc.ops.values import Agreement, agreement, worst

_MOST_COMPILED = 2


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
    judged = worst([_judged(run, compiled=compiled) for run in runs]) if operator.is_comparable else None
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
        judged.truth if judged is not None else Truth.UNCOMPARED,
        passes["backward"],
        passes["expanded"],
        judged.error if judged is not None else None,
        judged.contiguous_error if judged is not None else None,
    )
    return row if compiled else _with_edges_and_speed(row, operator, [run.case for run in runs], instruments)


def _with_edges_and_speed(
    row: OperatorRow, operator: Operator, cases: Sequence[Case], instruments: Instruments
) -> OperatorRow:
    if operator.is_comparable:
        found = {label: _edge(case) for label, case in operator.edges(cases, row.dims)}
        compared = {label: truth for label, truth in found.items() if truth not in (None, Truth.UNCOMPARED)}
        wrong = tuple(label for label, truth in compared.items() if truth == Truth.WRONG)
        row = replace(row, edges=tuple(compared), wrong_edges=wrong)
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


def _judged(run: _Run, *, compiled: bool) -> Agreement:
    """Values and gradients of a run against float64 and contiguous; compiled runs against contiguous alone."""
    if run.last["forward"].error:
        return Agreement(Truth.UNCOMPARED)
    exact = None if compiled else _reference(run.case)
    found = [
        agreement(run.contiguous[name].tensors, run.last[name].tensors, exact.get(name) if exact else None)
        for name in DIRECTIONS
        if name in run.contiguous and name in run.last and not (run.contiguous[name].error or run.last[name].error)
    ]
    together = worst(found)
    if together.truth == Truth.WRONG and run.contiguous["forward"].drew:
        return Agreement(Truth.RANDOM)
    return together


def _reference(case: Case) -> dict[str, list[torch.Tensor | None]] | None:
    """Every direction's tensors in float64; None where the operator does not run in it."""
    wide = attempt(case.changed(lambda tensor: in_dtype(tensor, torch.float64)), channels_last=False, mark=_unmarked)
    if wide["forward"].error:
        return None
    return {name: direction.tensors for name, direction in wide.items() if not direction.error}


def _edge(case: Case) -> Truth | None:
    """Whether a case of another shape agrees; None where contiguous inputs are refused too."""
    contiguous = attempt(case, channels_last=False, mark=_unmarked)
    if contiguous["forward"].error:
        return None
    last = attempt(case, channels_last=True, mark=_unmarked)
    if any(direction.error and not contiguous[name].error for name, direction in last.items() if name in contiguous):
        return Truth.WRONG
    return _judged(_Run(case, contiguous, last), compiled=False).truth


def _unmarked(_direction: str) -> AbstractContextManager[object]:
    return contextlib.nullcontext()


def _compiled(run: Callable[..., Any]) -> Callable[..., Any]:
    torch._dynamo.reset()
    compiled: Callable[..., Any] = torch.compile(run, dynamic=False)
    return compiled
