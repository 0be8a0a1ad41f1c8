"""A survey in a sentence, and what its table counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nhwc.report.formatting import plural, visible
from nhwc.timing import Verdict

if TYPE_CHECKING:
    from nhwc.operators import Survey


def headline(survey: Survey) -> str:
    """The first sentence of every report; of a part of a table, that of the whole."""
    if survey.whole is not None:
        return visible(survey.whole.sentences[0])
    names = {(row.name, row.group) for row in survey.rows}
    if not names:
        return "No operator is in this table."
    lost = {(row.name, row.group) for row in survey.rows if any(each.handling.is_problem for _, each in row.passes)}
    said = f"{len(names) - len(lost)} of {plural(len(names), 'operator')} keep channels last wherever it can be told"
    forward = _count(survey, lambda row: row.forward.handling.is_problem)
    backward = _count(survey, lambda row: row.backward is not None and row.backward.handling.is_problem)
    return f"{said}; {forward} lose it or copy in forward, {backward} in backward."


def sentences(survey: Survey) -> list[str]:
    """What else the table says as a whole: wrong values, speeds, failures; of a part of it, how many rows are shown."""
    if survey.whole is not None:
        shown = f"{len(survey.rows):,} of {plural(survey.whole.rows, 'row')} are shown; dtypes that agree share a line"
        return [*map(visible, survey.whole.sentences[1:]), shown]
    found = []
    wrong = _count(survey, lambda row: row.is_wrong)
    if wrong:
        verb = "gives" if wrong == 1 else "give"
        found.append(
            f"{plural(wrong, 'operator')} {verb} other values than for contiguous inputs, in some dtype or rank"
        )
    measured = _count(survey, lambda row: row.speed is not None)
    if measured:
        slower = _count(survey, lambda row: row.speed is not None and row.speed.verdict == Verdict.SLOWER)
        faster = _count(survey, lambda row: row.speed is not None and row.speed.verdict == Verdict.FASTER)
        found.append(
            f"of {plural(measured, 'operator')} whose forward pass was measured {slower} are slower in channels last "
            f"and {faster} faster, in some dtype or rank"
        )
    if survey.failures:
        found.append(f"{plural(len(survey.failures), 'operator')} could not be surveyed")
    return found


def where(survey: Survey) -> str:
    """Versions and machine in one line."""
    place = survey.conditions
    versions = dict(place.versions)
    named = [f"{name} {versions[name]}" for name in ("torch", "torchvision") if name in versions]
    return ", ".join(
        (*named, place.device, place.processor, plural(place.threads, "thread"), f"{survey.seconds:.0f} s")
    )


def _count(survey: Survey, holds: object) -> int:
    return len({(row.name, row.group) for row in survey.rows if holds(row)})  # type: ignore[operator]
