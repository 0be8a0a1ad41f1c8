"""The engine's report on a terminal: the first sentence, the table of steps, what fell back to torch, and the facts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from nhwc.report.engine.rows import rows
from nhwc.report.engine.summary import benchmark_lines, facts, fallback_lines, headline
from nhwc.report.formatting import visible
from nhwc.report.registry import report_format
from nhwc.report.terminal import Paper, as_string

if TYPE_CHECKING:
    from rich.console import Console

    from nhwc.engine_report import EngineReport
    from nhwc.report.engine.rows import Row

#: Narrower pages have a second line for the algorithm.
_WIDE = 110
#: Columns, of which the first ``_LEFT`` are words.
_HEADS, _LEFT = ("step", "output", "GFLOP", "ms", "speed", "share", "timed"), 2
_MEANING = (
    "share: of the peak where arithmetic bounds a step, of a copy's bandwidth where memory does; "
    "timed: the slowest algorithm's time over the chosen one's, alone, when the engine was built"
)


def print_engine_report(report: EngineReport, console: Console) -> None:
    """Print a report, as wide as the console (120 columns at most), in ASCII where it knows no more."""
    _Page(report, console).print()


@report_format("text", "engine")
def render_text(report: EngineReport, width: int = 100, color: bool = False) -> str:
    """The terminal report as a string, the same on every machine; ``color`` adds ANSI escapes."""
    return as_string(lambda console: print_engine_report(report, console), width, color)


class _Page(Paper):
    """Writes one report to one console."""

    def __init__(self, report: EngineReport, console: Console) -> None:
        super().__init__(console)
        self.report = report

    def print(self) -> None:
        report = self.report
        is_within = report.accuracy is None or report.accuracy.holds or bool(report.accuracy.reason)
        self.line(headline(report), "bold" if is_within else "bold red")
        if report.steps:
            self.gap()
            self.table()
            self.line(_MEANING, "dim")
        self.section("Against the model", benchmark_lines(report))
        self.section("Run by torch", fallback_lines(report))
        self.section("Notes", [visible(f"{note[:1].upper()}{note[1:]}.") for note in report.notes])
        self.gap()
        for label, text in facts(report):
            self.row(f"{label:<8}", text, "dim" if label != "numbers" or is_within else "bold red")

    def table(self) -> None:
        found, totals = rows(self.report)
        table = Table(box=None, padding=(0, 1, 0, 0), show_footer=True, pad_edge=False)
        foot = self.cells(totals)
        for place, name in enumerate(_HEADS):
            table.add_column(
                self.text(name, "bold"),
                self.text(foot[place], "bold"),
                justify="left" if place < _LEFT else "right",
                overflow="fold",
                no_wrap=place > 0,
            )
        for row in found:
            style = "yellow" if row.is_fallback else ""
            table.add_row(*[self.text(cell, style) for cell in self.cells(row)])
        self.console.print(table, width=self.width)

    def cells(self, row: Row) -> tuple[str, ...]:
        between = ": " if self.width >= _WIDE else "\n"
        parts = [part for part in (row.operation, row.algorithm) if part]
        described = " · ".join(parts) if self.width >= _WIDE else "\n".join(parts)
        first = f"{row.module}{between}{described}" if parts else row.module
        return first, row.output, row.gflop, row.ms, row.speed, row.share, row.gain
