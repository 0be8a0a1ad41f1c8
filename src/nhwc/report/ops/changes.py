"""What changed from one survey to another: the check to run before an upgrade of torch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from nhwc.errors import TargetError
from nhwc.operators import Truth
from nhwc.report.bench.numbers import interval_text, ratio_text
from nhwc.report.formatting import plural
from nhwc.report.ops.rows import matches
from nhwc.schema.typed import plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nhwc.operators import OperatorRow, Survey


class Kind(StrEnum):
    """The sort of a change, the worst first."""

    WORSE = "worse"
    GONE = "gone"
    BETTER = "better"
    NEW = "new"


@dataclass(frozen=True, slots=True)
class Change:
    """One difference. what: the column; before, after: its texts, empty where the row was not there."""

    kind: Kind
    name: str
    group: str
    dims: int
    dtype: str
    device: str
    mode: str
    what: str
    before: str
    after: str


def changes(old: Survey, new: Survey) -> tuple[Change, ...]:
    """Every difference, the worst first. A speed counts where the two intervals do not meet.

    Only rows that both surveys cover are compared: ``left_out`` says which are not. Raises TargetError where there are
    none, and for a table of problems alone, which does not tell what is fine from what was not looked at.
    """
    for name, each in (("old", old), ("new", new)):
        if each.whole is not None and each.whole.only:
            raise TargetError(f"the {name} table holds {each.whole.only} only (--only): save it with all its rows")
    first = {row.key: row for row in old.rows if _covers(new, row)}
    second = {row.key: row for row in new.rows if _covers(old, row)}
    if not first and not second and (old.rows or new.rows):
        raise TargetError(f"the two tables have nothing in common to compare: {_differences(old, new)}")
    found = [_came_or_went(Kind.GONE, row) for key, row in first.items() if key not in second]
    found += [_came_or_went(Kind.NEW, row) for key, row in second.items() if key not in first]
    for key, row in second.items():
        if key in first:
            found += _between(first[key], row)
    order = list(Kind)
    return tuple(sorted(found, key=lambda change: order.index(change.kind)))


def left_out(old: Survey, new: Survey) -> str:
    """A sentence on the rows that are not compared, since one survey alone covers them; empty where there are none."""
    lacking = [
        f"{count:,} of {plural(len(of.rows), 'row')} of the {name} one"
        for name, of, other in (("old", old, new), ("new", new, old))
        if (count := sum(not _covers(other, row) for row in of.rows))
    ]
    if not lacking:
        return ""
    rows = " and ".join(lacking)
    return f"only what both tables cover is compared, which leaves out {rows}: {_differences(old, new)}"


def as_document(found: Sequence[Change], old: Survey, new: Survey) -> dict[str, Any]:
    """Changes as JSON-able data, with the versions that they lie between."""
    versions = {name: dict(each.conditions.versions) for name, each in (("old", old), ("new", new))}
    note = left_out(old, new)
    return {
        "format": "nhwc-ops-changes",
        "version": 1,
        **versions,
        "notes": [note] if note else [],
        "changes": plain(tuple(found)),
    }


def _filters(survey: Survey) -> tuple[str, ...]:
    return tuple(filter(None, (survey.filter, *(survey.whole.filters if survey.whole is not None else ()))))


def _covers(survey: Survey, row: OperatorRow) -> bool:
    """Whether a survey looked for the operator of a row, in its dtype and mode."""
    asked = row.dtype in survey.dtypes and row.mode in survey.modes
    if row.group == "operator" and row.mode in survey.own_modes:
        return False
    return asked and all(matches(row, each) for each in _filters(survey))


def _differences(old: Survey, new: Survey) -> str:
    one, other = _filters(old), _filters(new)
    found = [("filters", one, other), ("dtypes", old.dtypes, new.dtypes), ("modes", old.modes, new.modes)]
    found.append(("modes of nhwc's own samples alone", old.own_modes, new.own_modes))
    return "; ".join(
        f"the {what} are {', '.join(before) or 'none'} in the old table and {', '.join(after) or 'none'} in the new one"
        for what, before, after in found
        if set(before) != set(after)
    )


def _came_or_went(kind: Kind, row: OperatorRow) -> Change:
    text = row.worst.value
    return Change(kind, *row.key, "operator", *(("", text) if kind is Kind.NEW else (text, "")))


def _between(old: OperatorRow, new: OperatorRow) -> Iterator[Change]:
    before, after = dict(old.passes), dict(new.passes)
    for name in dict.fromkeys((*before, *after)):
        one, other = before.get(name), after.get(name)
        if one is None or other is None:
            kind = Kind.NEW if one is None else Kind.GONE
            texts = ("", other.handling.value) if other is not None else ((one.handling.value if one else ""), "")
            yield Change(kind, *new.key, name, *texts)
        elif one.handling != other.handling:
            kind = Kind.WORSE if other.handling.rank > one.handling.rank else Kind.BETTER
            yield Change(kind, *new.key, name, one.handling.value, other.handling.value)
    if old.truth != new.truth and Truth.WRONG in (old.truth, new.truth):
        kind = Kind.WORSE if new.truth == Truth.WRONG else Kind.BETTER
        yield Change(kind, *new.key, "values", old.truth.value, new.truth.value)
    for edge in dict.fromkeys((*old.wrong_edges, *new.wrong_edges)):
        if (edge in old.wrong_edges) != (edge in new.wrong_edges):
            kind = Kind.WORSE if edge in new.wrong_edges else Kind.BETTER
            yield Change(kind, *new.key, f"values, {edge}", *(("right", "wrong")[:: 1 if kind is Kind.WORSE else -1]))
    yield from _speeds(old, new)


def _speeds(old: OperatorRow, new: OperatorRow) -> Iterator[Change]:
    before = dict(old.speeds)
    for name, speed in new.speeds:
        known = before.get(name)
        if known is None or known.shape != speed.shape:
            continue
        one, other = known.ratio, speed.ratio
        if other.high < one.low or other.low > one.high:
            kind = Kind.WORSE if other.high < one.low else Kind.BETTER
            texts = [f"{ratio_text(each)} ({interval_text(each)})" for each in (one, other)]
            yield Change(kind, *new.key, f"speed, {name}", *texts)
