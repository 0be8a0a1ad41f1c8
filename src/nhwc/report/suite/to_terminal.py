"""A suite on a terminal: a sentence and a table for each mode, what failed, and the conditions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from nhwc.report.registry import report_format
from nhwc.report.suite.sections import facts, remarks
from nhwc.report.suite.summary import failures, headlines, row_text, unstable_reasons
from nhwc.report.terminal import Paper, as_string

if TYPE_CHECKING:
    from rich.console import Console

    from nhwc.suite import SuiteResult

_HEADS = ("model", "ratio", "interval", "verdict", "the tutorial", "measured")
_STYLES = {"faster": "green", "unstable": "yellow", "slower": "red", "failed": "red"}


def print_suite(result: SuiteResult, console: Console) -> None:
    """Print a suite, as wide as the console (120 columns at most), in ASCII where it knows no more."""
    paper = Paper(console)
    for said in headlines(result):
        paper.line(said, "bold")
    for mode in result.modes:
        paper.gap()
        paper.line(mode.capitalize(), "bold")
        _print_table(result, mode, paper)
    paper.section("Why nothing can be said", unstable_reasons(result))
    paper.section("Not measured", failures(result))
    paper.gap()
    for said in remarks(result):
        paper.line(said, "dim")
    paper.gap()
    for label, text in facts(result):
        paper.row(f"{label:<9}", text, "dim")


@report_format("text", "suite")
def render_text(result: SuiteResult, width: int = 100, color: bool = False) -> str:
    """The terminal report as a string, the same on every machine; ``color`` adds ANSI escapes."""
    return as_string(lambda console: print_suite(result, console), width, color)


def _print_table(result: SuiteResult, mode: str, paper: Paper) -> None:
    grid = Table.grid(padding=(0, 2, 0, 0))
    for name in _HEADS:
        grid.add_column(justify="right" if name in {"ratio", "interval"} else "left", no_wrap=True)
    grid.add_row(*(paper.text(head, "dim") for head in _HEADS))
    for row in map(row_text, result.of_mode(mode)):
        cells = (row.model, row.ratio, row.interval, row.verdict, row.claim, row.place)
        number = "dim" if row.is_soft else ""
        styles = ("", number, number, _STYLES.get(row.verdict, ""), "", "dim")
        grid.add_row(*(paper.text(cell, style) for cell, style in zip(cells, styles, strict=True)))
    paper.console.print(grid, width=paper.width, highlight=False)
