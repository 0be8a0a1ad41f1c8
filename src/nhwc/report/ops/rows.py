"""The rows of a table as text: dtypes that agree share a line; filtered and sorted as asked."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from nhwc.errors import RegistryError
from nhwc.operators import Mode, Truth, Whole
from nhwc.report.bench.numbers import interval_text, ratio_text
from nhwc.report.formatting import NOTHING, bytes_text, visible
from nhwc.report.ops.summary import headline, sentences

if TYPE_CHECKING:
    from nhwc.operators import Fault, OperatorRow, Pass, Speed, Survey

_SHORT = {"float32": "fp32", "bfloat16": "bf16", "float64": "fp64", "float16": "fp16"}

_MOST_DTYPES = 2
_MODES = {mode.value: place for place, mode in enumerate(Mode)}

#: How rows can be sorted: the name of an order → its key.
SORTS: dict[str, Callable[[OperatorRow], tuple[object, ...]]] = {
    "name": lambda row: (row.name.lower(), row.dims, _MODES.get(row.mode, len(_MODES))),
    "worst": lambda row: (
        -int(row.truth == Truth.WRONG),
        -row.worst.rank,
        row.name.lower(),
        row.dims,
        _MODES.get(row.mode, len(_MODES)),
    ),
    "forward": lambda row: (-row.forward.handling.rank, row.name.lower(), row.dims, _MODES.get(row.mode, len(_MODES))),
    "backward": lambda row: (-(row.backward.handling.rank if row.backward else -1), row.name.lower(), row.dims),
    "speed": lambda row: (row.speed.ratio.estimate if row.speed else float("inf"), row.name.lower(), row.dims),
}


@dataclass(frozen=True)
class Line:
    """One line: rows that differ in their dtype and speed alone. The first of them stands for all else."""

    rows: tuple[OperatorRow, ...]

    @property
    def first(self) -> OperatorRow:
        return self.rows[0]

    @property
    def dtypes(self) -> str:
        return " ".join(short_dtype(row.dtype) for row in self.rows)

    @property
    def values(self) -> str:
        return values_text(self.first)

    @property
    def kernels(self) -> str:
        return ", ".join(map(visible, self.first.kernels)) or NOTHING

    def speeds(self, what: str) -> list[tuple[str, Speed]]:
        """(dtype, speed) of "forward" or "forward and backward"."""
        return [(short_dtype(row.dtype), speed) for row in self.rows for name, speed in row.speeds if name == what]


def chosen(survey: Survey, filter_: str = "", only: str = "", sort: str = "name") -> Survey:
    """The survey with the rows that were asked for, in the order that was asked for; it keeps what the whole one says.

    filter_: text in the name or kind. only: "problems" or "". Raises RegistryError for an unknown word.
    """
    check(only, sort)
    rows = [row for row in survey.rows if matches(row, filter_) and (not only or row.is_problem)]
    ordered = tuple(sorted(rows, key=SORTS[sort]))
    if len(ordered) == len(survey.rows):
        return replace(survey, rows=ordered)
    before = survey.whole or Whole(len(survey.rows), (), "", (headline(survey), *sentences(survey)))
    filters = (*before.filters, filter_) if filter_ else before.filters
    return replace(survey, rows=ordered, whole=replace(before, filters=filters, only=only or before.only))


def matches(row: OperatorRow, filter_: str) -> bool:
    """Whether a text is in the name or the kind of a row, in any case."""
    wanted = filter_.lower()
    return wanted in row.name.lower() or wanted in row.group


def check(only: str, sort: str) -> None:
    """Raise RegistryError for a word that ``chosen`` does not know."""
    if sort not in SORTS:
        raise RegistryError(f"there is no order {sort!r}; the orders are {', '.join(SORTS)}")
    if only not in ("", "problems"):
        raise RegistryError(f"only {only!r} is not known; write problems, or leave it out for all")


def lines(rows: Sequence[OperatorRow]) -> list[Line]:
    """Rows side by side that differ in nothing but their dtype and their speed, as one line each."""
    groups = itertools.groupby(rows, key=_looks)
    return [Line(tuple(group)) for _, group in groups]


def short_dtype(dtype: str) -> str:
    """
    >>> short_dtype("bfloat16")
    'bf16'
    """
    return _SHORT.get(dtype, dtype)


def dtypes_text(line: Line, survey: Survey) -> str:
    """The dtypes of a line; "all" where they are all that were surveyed, and more than two."""
    return "all" if len(survey.dtypes) > _MOST_DTYPES and len(line.rows) == len(survey.dtypes) else line.dtypes


def timed_dtypes(survey: Survey) -> list[str]:
    """The dtypes that speeds were measured in: where it is one alone, it need not stand beside every number."""
    return list(dict.fromkeys(short_dtype(row.dtype) for row in survey.rows if row.speeds))


def handling_text(found: Pass | None) -> str:
    """What a direction does with the format, in one or two words."""
    return NOTHING if found is None else found.handling.value


def values_text(row: OperatorRow) -> str:
    """Whether values are right, with the shapes for which they are not."""
    if row.wrong_edges:
        return f"wrong: {', '.join(row.wrong_edges)}" if row.truth != Truth.WRONG else "wrong"
    return row.truth.value


def speed_text(speed: Speed | None) -> str:
    """The ratio, and its interval."""
    return NOTHING if speed is None else f"{ratio_text(speed.ratio)} ({interval_text(speed.ratio)})"


def why_text(row: OperatorRow) -> str:
    """What a reader needs to see a problem again: what is wrong, the copies, the first sample that loses the format."""
    parts = [_fault_text(each) for each in row.faults]
    if row.truth == Truth.WRONG and not row.faults:  # saved before faults were kept
        parts.append(f"values: wrong, {_error_text(row.error, row.contiguous_error, 'float64')}")
    for name, each in row.passes:
        if not each.handling.is_problem:
            continue
        if each.copiers:
            inside = f"{', '.join(each.copiers)} {bytes_text(each.copied_bytes)} where contiguous copies"
            parts.append(f"{name}: {inside} {bytes_text(each.contiguous_copied_bytes)}")
        if each.example:
            parts.append(f"{name}: {visible(each.example)}")
    if row.note:
        parts.append(f"speed: {visible(row.note)}")
    return "; ".join(parts)


def _fault_text(fault: Fault) -> str:
    place = f"{visible(fault.sample)}, {visible(fault.edge)}" if fault.edge else visible(fault.sample)
    if fault.raised:
        return f"{visible(fault.what)} for {place}: raises {visible(fault.raised)}, which contiguous does not"
    told = _error_text(fault.error, fault.contiguous_error, visible(fault.reference))
    return f"wrong {visible(fault.what)} for {place}: {told}"


def _error_text(error: float | None, contiguous_error: float | None, reference: str) -> str:
    if error is None or contiguous_error is None:
        return "other shapes, dtypes or whole numbers than for contiguous"
    beside = f", where contiguous has {contiguous_error:.2g}" if reference != "contiguous" else ""
    return f"error {error:.2g} of the largest value against {reference}{beside}"


def _looks(row: OperatorRow) -> tuple[object, ...]:
    told = (row.forward.handling, row.backward and row.backward.handling, row.expanded and row.expanded.handling)
    return (row.name, row.group, row.dims, row.device, row.mode, row.kernels, *told, values_text(row))
