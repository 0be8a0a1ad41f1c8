"""A survey in a sentence, and what its table counts."""

from __future__ import annotations

import functools
import statistics
from typing import TYPE_CHECKING

from nhwc.operators import Mode
from nhwc.report.formatting import plural, visible
from nhwc.timing import Verdict

_FEWEST_INTERVALS = 10  # fewer are read one by one

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from nhwc.operators import OperatorRow, Survey

    Rows = Sequence[OperatorRow]


def headline(survey: Survey) -> str:
    """The first sentence of every report, on operators as they are; of a part of a table, that of the whole."""
    if survey.whole is not None:
        return visible(survey.whole.sentences[0])
    rows = _of_mode(survey, Mode.EAGER)
    if not rows:
        return "No operator is in this table."
    said = f"{_keeping_text(rows)} wherever it can be told"
    forward = _count(rows, lambda row: row.forward.handling.is_problem)
    backward = _count(rows, lambda row: row.backward is not None and row.backward.handling.is_problem)
    return f"{said}; {forward} lose it or copy in forward, {backward} in backward."


def sentences(survey: Survey) -> list[str]:
    """What else the table says as a whole: wrong values, speeds, failures; of a part of it, how many rows are shown."""
    if survey.whole is not None:
        shown = f"{len(survey.rows):,} of {plural(survey.whole.rows, 'row')} are shown; dtypes that agree share a line"
        return [*map(visible, survey.whole.sentences[1:]), shown]
    return list(_told(survey))


def _told(survey: Survey) -> Iterator[str]:
    rows = _of_mode(survey, Mode.EAGER)
    wrong = _count(rows, lambda row: row.is_wrong)
    if wrong:
        verb = "gives" if wrong == 1 else "give"
        yield f"{plural(wrong, 'operator')} {verb} other values than for contiguous inputs, in some dtype or rank"
    if any(row.speeds for row in rows):
        yield f"of {_speeds_text(rows)}, in some dtype or rank"
    switched = _of_mode(survey, Mode.KERNELS)
    if switched:
        yield from _with_kernels(rows, switched)
    compiled = _of_mode(survey, Mode.COMPILED)
    if compiled:
        whose = ", of nhwc's own samples alone" if Mode.COMPILED in survey.own_modes else ""
        yield f"compiled, {_keeping_text(compiled)}{whose}"
    widths = sorted((speed.ratio.high / speed.ratio.low) ** 0.5 - 1.0 for row in survey.rows for _, speed in row.speeds)
    if len(widths) >= _FEWEST_INTERVALS:
        middle, most = statistics.median(widths), widths[int(0.9 * (len(widths) - 1))]
        verdicts = [speed.verdict for row in survey.rows for _, speed in row.speeds]
        yield (
            f"speeds are ratios of interleaved pairs: half of the {len(widths):,} intervals are narrower than "
            f"{middle:.0%} to either side, nine in ten than {most:.0%}, and "
            f"{verdicts.count(Verdict.CANNOT_TELL):,} cannot be told from 1"
        )
    if survey.failures:
        yield f"{plural(len(survey.failures), 'operator')} could not be surveyed"


def _with_kernels(rows: Rows, switched: Rows) -> Iterator[str]:
    served = {(row.name, row.group, row.dims, row.dtype) for row in switched}
    before = [row for row in rows if (row.name, row.group, row.dims, row.dtype) in served]
    kept = _count(switched, lambda _: True) - _losing(switched)
    kept_before = _count(before, lambda _: True) - _losing(before)
    served_text = plural(_count(switched, lambda _: True), "operator")
    yield (
        f"the kernels of nhwc serve {served_text}: with them switched on {kept} keep channels last throughout, "
        f"without them {kept_before}"
    )
    wrong, wrong_before = (_count(each, lambda row: row.is_wrong) for each in (switched, before))
    if wrong or wrong_before:
        yield f"of these {wrong} give other values with the kernels, {wrong_before} without them"
    if any(row.speeds for row in switched):
        yield f"with the kernels, of {_speeds_text(switched)}"


def _speeds_text(rows: Rows) -> str:
    measured, slower, faster = (
        _count(rows, functools.partial(_is_measured, verdicts=verdicts))
        for verdicts in (tuple(Verdict), (Verdict.SLOWER,), (Verdict.FASTER,))
    )
    return (
        f"{plural(measured, 'operator')} whose forward pass was measured {slower} are slower in channels last "
        f"and {faster} faster"
    )


def _is_measured(row: OperatorRow, verdicts: Sequence[Verdict]) -> bool:
    return row.speed is not None and row.speed.verdict in verdicts


def _keeping_text(rows: Rows) -> str:
    every = _count(rows, lambda _: True)
    return f"{every - _losing(rows)} of {plural(every, 'operator')} keep channels last"


def where(survey: Survey) -> str:
    """Versions and machine in one line."""
    place = survey.conditions
    versions = dict(place.versions)
    named = [f"{name} {versions[name]}" for name in ("torch", "torchvision") if name in versions]
    return ", ".join(
        (*named, place.device, place.processor, plural(place.threads, "thread"), f"{survey.seconds:.0f} s")
    )


def _of_mode(survey: Survey, mode: Mode) -> Rows:
    return [row for row in survey.rows if row.mode == mode]


def _losing(rows: Rows) -> int:
    return _count(rows, lambda row: any(each.handling.is_problem for _, each in row.passes))


def _count(rows: Rows, holds: Callable[[OperatorRow], bool]) -> int:
    """How many operators have a row for which it holds."""
    return len({(row.name, row.group) for row in rows if holds(row)})
