"""A case run in both formats, under marks by which what was seen inside is found again."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from nhwc.ops.attempt import Direction, attempt, without_gradients
from nhwc.ops.case import Case
from nhwc.ops.instruments import Watch

_marks = itertools.count()


@dataclass
class Run:
    """One case in both formats. marks: (in channels last, direction) → the index of what a watch saw of it."""

    case: Case
    contiguous: Mapping[str, Direction]
    last: Mapping[str, Direction]
    marks: dict[tuple[bool, str], int] = field(default_factory=dict)


def both(case: Case, watch: Watch) -> Run | None:
    """A case in both formats; None where it raises on contiguous inputs, so that nothing can be said of it."""
    for each in (case, without_gradients(case)):
        run = Run(each, {}, {})
        run.contiguous = attempt(each, channels_last=False, mark=_marker(run, watch, False))
        if not run.contiguous["forward"].error:
            run.last = attempt(each, channels_last=True, mark=_marker(run, watch, True))
            return run
    return None


def compiled(case: Case) -> Run | None:
    """A case as it is on contiguous inputs, and compiled in channels last: what the compiler makes of contiguous ones
    is looked at only where it raises, since compiling is slow; None where both raise.
    """
    for each in (case, without_gradients(case)):
        contiguous = attempt(each, channels_last=False, mark=unmarked)
        if contiguous["forward"].error:
            continue
        last = attempt(_compiled(each), channels_last=True, mark=unmarked)
        if last["forward"].error and attempt(_compiled(each), channels_last=False, mark=unmarked)["forward"].error:
            return None
        return Run(each, contiguous, last)
    return None


def unmarked(_direction: str) -> AbstractContextManager[object]:
    """Brackets nothing: for runs that nobody watches."""
    return contextlib.nullcontext()


def _marker(run: Run, watch: Watch, channels_last: bool) -> Callable[[str], AbstractContextManager[object]]:
    def mark(direction: str) -> AbstractContextManager[object]:
        index = run.marks[channels_last, direction] = next(_marks)
        return watch.mark(index)

    return mark


def _compiled(case: Case) -> Case:
    torch._dynamo.reset()
    run: Callable[..., Any] = torch.compile(case.run, dynamic=False)
    return replace(case, run=run)
