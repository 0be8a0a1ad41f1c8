"""The verb survey: the operators of the installed torch, run in child processes, and the report of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from nhwc.api.showing import Showing
from nhwc.api.surveying_part import Key, Part
from nhwc.errors import TargetError
from nhwc.machine import ChildError, conditions
from nhwc.machine.child import Child, environ_for_python
from nhwc.operators import Failure, Mode, OperatorRow, Survey
from nhwc.progress import Progress, quiet
from nhwc.report.ops.changes import Change
from nhwc.report.ops.changes import changes as changes_between
from nhwc.schema import load_ops
from nhwc.schema.ops import read_row

DTYPES = ("float32", "bfloat16", "float64")
#: Whose samples are measured, or compiled as well.
SAMPLES = ("none", "own", "all")
_KNOWN_DTYPES = ("float32", "bfloat16", "float64", "float16")
_COMMAND = [sys.executable, "-P", "-m", "nhwc.api.surveying_child"]
_START_S = 300.0
_PROBE_S = 180.0
_COMPILED_S = 900.0


@dataclass(frozen=True, repr=False)
class OpsReport(Showing, Survey):
    """A table of operators that shows itself: in a terminal and in a file (.html, .json or .txt)."""

    _kind = "ops"

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} of torch {self.torch}: {len(self.rows)} rows, {len(self.problems)} with problems>"
        )


def survey(
    filter: str = "",  # noqa: A002 the public word for it
    *,
    dtypes: Sequence[str] = DTYPES,
    device: torch.device | str = "cpu",
    compiled: str = "none",
    speed: str = "none",
    kernels: bool = False,
    timeout_s: float | None = None,
    resume: str | Path | None = None,
    progress: Progress | None = None,
) -> OpsReport:
    """What every operator of the installed torch and torchvision that takes a picture does with channels last.

    Operators run in a child process: one that crashes or hangs is named in the table, and nothing in this process
    changes, its random state included. The whole table takes minutes.

    filter: only operators with this text in their name or group.
    dtypes: some of "float32", "bfloat16", "float64", "float16".
    device: where they run.
    compiled: also through torch.compile, which is slow: nhwc's "own" samples, or "all", those of torch as well, in the
    first of the dtypes; "none".
    speed: measure channels last against contiguous at a representative shape, in the first of the dtypes: "own"
    samples, which have the sizes of real networks, forward and backward, or "all", those of torch as well, enlarged
    where their arguments allow it, forward alone; "none".
    kernels: rows with the kernels of nhwc.kernels switched on too, for operators that one of them serves.
    timeout_s: seconds that one operator may take in one mode; by default three minutes, fifteen compiled.
    resume: a file that keeps what is found as it is found, and is read where it is there: the same call, or one for
    more modes (``kernels``, ``compiled``), goes on in it.
    progress: called with (stage, done, total).

    Raises TargetError for an unknown dtype, device, speed or compiled, where nothing has the text in its name, and for
    a file of another survey.
    """
    place = _device(device)
    _check(dtypes, speed, compiled)
    say = progress or quiet
    question = {"dtypes": list(dtypes), "device": place, "speed": speed}
    modes = tuple(_modes(compiled, kernels=kernels))
    say("listing operators", 0, 1)
    path = None if resume is None else Path(resume)
    with Part(path, question, conditions(place)) as part, _Workers(timeout_s) as workers:
        listed = workers.ask({"list": filter}, _START_S)
        names: list[tuple[str, str]] = [(name, group) for name, group in listed["names"]]
        if not names:
            raise TargetError(f"no operator has {filter!r} in its name; leave the filter out to see all")
        failures: list[Failure] = []
        every = [(*operator, mode) for mode in modes for operator in names if _is_asked(operator[1], mode, compiled)]
        for done, key in enumerate(every):
            say(key[0], done, len(every))
            try:
                if key not in part:
                    part.add(key, _rows(key, part, workers, question))
            except ChildError as error:
                failures.append(Failure(key[0] if key[2] == Mode.EAGER else f"{key[0]}, {key[2]}", str(error)))
        say("done", len(every), len(every))
        rows = [row for operator in names for mode in modes for row in part.rows((*operator, mode))]
        return OpsReport(
            conditions(place),
            tuple(rows),
            tuple(failures),
            tuple(dtypes),
            modes,
            filter,
            tuple(listed["notes"]),
            part.seconds,
            part.started,
            own_modes=(Mode.COMPILED.value,) if compiled == "own" else (),
        )


def _rows(key: Key, part: Part, workers: _Workers, question: Mapping[str, Any]) -> list[OperatorRow]:
    """An operator's rows in a mode, from a child. Raises ChildError as that does."""
    name, group, mode = key
    asked = {**question, "operator": name, "group": group, "mode": mode}
    if mode != Mode.KERNELS:
        return [read_row(each) for each in workers.ask(asked)]
    served = {(row.dims, row.dtype): row.kernels for row in part.rows((name, group, Mode.EAGER)) if row.kernels}
    if not served:
        return []
    answer = [read_row(each) for each in workers.ask({**asked, "only": list(served)})]
    return [replace(row, kernels=served[row.dims, row.dtype]) for row in answer]


def _is_asked(group: str, mode: str, compiled: str) -> bool:
    return mode != Mode.COMPILED or compiled == "all" or group != "operator"


def _modes(compiled: str, *, kernels: bool) -> Iterator[str]:
    yield Mode.EAGER.value
    if kernels:
        yield Mode.KERNELS.value
    if compiled != "none":
        yield Mode.COMPILED.value


def load(source: Mapping[str, Any] | str | Path) -> OpsReport:
    """The table saved as JSON in a file (a path), a text or a dictionary; equal to the one that was saved.

    Raises SchemaError where it is not ours, is damaged, or comes from a newer nhwc.
    """
    return of(load_ops(source))


def of(found: Survey) -> OpsReport:
    """A survey that shows itself."""
    return OpsReport(**{field.name: getattr(found, field.name) for field in fields(Survey)})


def changes(old: Survey, new: Survey) -> tuple[Change, ...]:
    """What differs between two surveys, the worst first: operators that came, went, or handle the format otherwise.

    Only what both cover is compared. Raises TargetError where that is nothing, and for a table of problems alone.
    """
    return changes_between(old, new)


def _check(dtypes: Sequence[str], speed: str, compiled: str) -> None:
    for word, given in (("speed", speed), ("compiled", compiled)):
        if given not in SAMPLES:
            raise TargetError(f"{word}={given!r} is not known; name one of {', '.join(SAMPLES)}")
    unknown = [each for each in dtypes if each not in _KNOWN_DTYPES]
    if unknown or not dtypes:
        raise TargetError(f"dtypes={list(dtypes)!r}: name some of {', '.join(_KNOWN_DTYPES)}")


def _device(device: torch.device | str) -> str:
    try:
        place = torch.device(device)
        torch.empty(1, device=place)
    except (RuntimeError, AssertionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise TargetError(f"there is no device {str(device)!r} here ({reason}); leave it out for the CPU") from error
    return str(place)


class _Workers:
    """A child that answers, and another one after it where it died or hung."""

    def __init__(self, timeout_s: float | None) -> None:
        self._timeout_s = timeout_s
        self._child: Child | None = None

    def ask(self, question: Mapping[str, Any], timeout_s: float | None = None) -> Any:
        """The answer. Raises ChildError where the child dies, hangs or raises; the next question gets a new child."""
        fresh = self._child is None
        if self._child is None:
            self._child = Child("the process of the operators", _COMMAND, environ_for_python(os.environ))
        asked = {**question, "threads": torch.get_num_threads()} if fresh else question
        usual_s = _COMPILED_S if question.get("mode") == Mode.COMPILED else _PROBE_S
        limit_s = timeout_s or (self._timeout_s or usual_s) + (_START_S if fresh else 0.0)
        try:
            return self._child.ask(asked, limit_s)
        except ChildError:
            self.close()
            raise

    def close(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None

    def __enter__(self) -> _Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
