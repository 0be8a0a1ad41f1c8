"""The chart of ratios drawn in characters: an axis, a line at 1, and an interval for each row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nhwc.report.bench.axis import LogAxis, axis_for, tick_text
from nhwc.report.formatting import shorten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nhwc.report.bench.rows import Row

_LONGEST_LABEL = 28
_LEAST_PLOT = 16


def plot(rows: Sequence[Row], width: int) -> list[str]:
    """Lines of at most ``width`` characters; empty where no row has a ratio."""
    shown = [row.bounds for row in rows if row.bounds is not None]
    if not shown:
        return []
    room = min(_LONGEST_LABEL, max(len(row.name) for row in rows), max(1, width - _LEAST_PLOT - 2))
    axis = axis_for(bound for each in shown for bound in (each.low, each.estimate, each.high))
    columns = max(2, width - room - 2)
    lines = [f"{shorten(row.name, room):<{room}}  {_interval(row, axis, columns)}".rstrip() for row in rows]
    return [*lines, f"{'':<{room}}  {_tick_line(axis, columns)}"]


def _interval(row: Row, axis: LogAxis, columns: int) -> str:
    cells = [" "] * columns
    one = _column(1.0, axis, columns)
    cells[one] = "│"
    if row.is_baseline:
        cells[one] = "●"
    elif row.bounds is None:
        text = "did not run" if row.failure else "no ratio"
        start = one + 2 if one + 2 + len(text) <= columns else max(0, one - 1 - len(text))
        cells[start : start + len(text)] = text
    else:
        low, estimate, high = (
            _column(value, axis, columns) for value in (row.bounds.low, row.bounds.estimate, row.bounds.high)
        )
        cells[low : high + 1] = "━" * (high - low + 1)
        cells[low], cells[high] = ("├", "┤") if low < high else ("━", "━")
        cells[estimate] = "●"
    return "".join(cells[:columns])


def _tick_line(axis: LogAxis, columns: int) -> str:
    """Ticks that have room, 1 first since it must have it."""
    cells = [" "] * columns
    for tick in sorted(axis.ticks, key=lambda each: each != 1.0):
        text = tick_text(tick)
        start = min(max(0, _column(tick, axis, columns) - len(text) // 2), columns - len(text))
        around = cells[max(0, start - 1) : start + len(text) + 1]
        if start >= 0 and all(cell == " " for cell in around):
            cells[start : start + len(text)] = text
    return "".join(cells).rstrip()


def _column(value: float, axis: LogAxis, columns: int) -> int:
    return round(axis.position(value) * (columns - 1))
