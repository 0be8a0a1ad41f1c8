"""The columns of the table of culprits, in one unit each, whose texts add up to the totals beneath them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nhwc.report.culprits import cost_of
from nhwc.report.formatting import NOTHING, byte_unit, column, ms_places

if TYPE_CHECKING:
    from nhwc.model import Report
    from nhwc.report.culprits import Cost, Culprit


@dataclass(frozen=True)
class Row:
    """Texts of one row: calls, bytes and milliseconds in the units of their columns, and the share of the step."""

    calls: str
    bytes: str
    ms: str
    share: str


@dataclass(frozen=True)
class Columns:
    """own, after: a row for each culprit and for what follows from it (None where nothing does); total: the footer."""

    byte_unit: str
    own: tuple[Row, ...]
    after: tuple[Row | None, ...]
    total: Row


def columns(report: Report, found: list[Culprit]) -> Columns:
    """The rows of ``found`` with their total, which is that of the report's findings, notes aside.

    >>> from nhwc.model import Environment, Report, Trace
    >>> columns(Report(Trace("net", "eager", False, Environment("2.14", "3.11", "cpu", "x86", 2, "0.1"), ())), []).total
    Row(calls='0', bytes='0', ms='–', share='–')
    """
    costs: list[Cost] = []
    for culprit in found:
        costs += [culprit.own, culprit.after] if culprit.consequences else [culprit.own]
    whole = cost_of(finding for culprit in found for finding in culprit.findings + culprit.consequences)
    unit, size = byte_unit(whole.bytes)
    byte_texts, byte_total = column([cost.bytes / size for cost in costs], 0 if size == 1 else 2)
    ms_texts, ms_total = column([cost.ms for cost in costs], ms_places(whole.ms))
    share_texts, share_total = column([_percent(cost, report) for cost in costs], 1)
    places = ms_places(whole.ms)
    rows = iter(
        Row(
            calls=f"{cost.calls:,}",
            bytes=moved,
            ms=ms if cost.spread_ms is None or ms == NOTHING else f"{ms} ± {cost.spread_ms:.{places}f}",
            share=share if share == NOTHING else f"{share} %",
        )
        for cost, moved, ms, share in zip(costs, byte_texts, ms_texts, share_texts, strict=True)
    )
    pairs = [(next(rows), next(rows) if culprit.consequences else None) for culprit in found]
    return Columns(
        byte_unit=unit,
        own=tuple(own for own, _ in pairs),
        after=tuple(after for _, after in pairs),
        total=Row(
            calls=f"{whole.calls:,}",
            bytes=byte_total if costs else "0",
            ms=ms_total,
            share=share_total if share_total == NOTHING else f"{share_total} %",
        ),
    )


def _percent(cost: Cost, report: Report) -> float | None:
    share = cost.share(report)
    return None if share is None else 100 * share
