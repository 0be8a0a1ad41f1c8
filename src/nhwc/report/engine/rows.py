"""The table of an engine's steps as text: one row each, and the totals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nhwc.engine_report import Bound
from nhwc.report.formatting import NOTHING, column, module_text, ms_places, percent_text, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nhwc.engine_report import EngineReport, StepTiming


@dataclass(frozen=True)
class Row:
    """The cells of one step. speed: with its unit. share: of the limit that bounds it. gain: how many times as long the
    slowest that was timed takes.
    """

    module: str
    operation: str
    algorithm: str
    output: str
    gflop: str
    ms: str
    speed: str
    share: str
    gain: str
    is_fallback: bool


def rows(report: EngineReport) -> tuple[tuple[Row, ...], Row]:
    """One row for each step in their order, and the totals, which are the sums of what the rows show."""
    times, total_ms = column([step.ms for step in report.steps], ms_places(report.steps_ms))
    work, total_work = column([step.flop / 1e9 for step in report.steps], 3)
    found = tuple(_row(report, step, *cells) for step, *cells in zip(report.steps, work, times, strict=True))
    seconds = report.steps_ms / 1000.0
    rate = report.flop / seconds if seconds else 0.0
    totals = Row(
        f"{len(report.steps)} steps",
        "",
        "",
        "",
        total_work,
        total_ms,
        _rate(rate),
        percent_text(rate / report.limits.flop_per_s),
        "",
        is_fallback=False,
    )
    return found, totals


def _row(report: EngineReport, step: StepTiming, gflop: str, ms: str) -> Row:
    is_arithmetic = step.bound(report.limits) is Bound.ARITHMETIC
    speed = _rate(step.flop_per_s) if is_arithmetic else f"{step.bytes_per_s / 1e9:.1f} GB/s"
    return Row(
        module=visible(module_text(step.module)),
        operation=visible(step.operation),
        algorithm=step.algorithm,
        output=size_text(step.output),
        gflop=gflop if step.flop else NOTHING,
        ms=ms,
        speed=speed if step.moved_bytes else NOTHING,
        share=percent_text(step.share(report.limits)) if step.moved_bytes else NOTHING,
        gain=_gain(step),
        is_fallback=step.is_fallback,
    )


def size_text(shape: Sequence[int] | None) -> str:
    """A shape without brackets.

    >>> size_text((8, 64, 56, 56)), size_text(None)
    ('8x64x56x56', '–')
    """
    return NOTHING if shape is None else "x".join(map(str, shape))


def _rate(flop_per_s: float) -> str:
    return f"{flop_per_s / 1e9:.1f} GFLOP/s"


def _gain(step: StepTiming) -> str:
    """The slowest time over the fastest, of what was timed."""
    if len(step.alternatives) < 2 or not step.alternatives[0].ms:
        return ""
    return f"{step.alternatives[-1].ms / step.alternatives[0].ms:.2f}"
