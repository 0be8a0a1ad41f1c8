"""The optimization on a terminal: what was chosen, a row for each candidate, why not the others, and the conditions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from nhwc.report.bench.numbers import confidence_text
from nhwc.report.formatting import NOTHING, visible
from nhwc.report.optimization.summary import HEADS, facts, headline, other_lines, rows
from nhwc.report.plan.to_terminal import print_plan
from nhwc.report.registry import report_format
from nhwc.report.terminal import Paper, as_string

if TYPE_CHECKING:
    from rich.console import Console

    from nhwc.optimization_report import Optimization
    from nhwc.report.optimization.summary import Row


def print_optimization(optimization: Optimization, console: Console) -> None:
    """Print an optimization, as wide as the console (120 columns at most), in ASCII where it knows no more."""
    _Page(optimization, console).print()


@report_format("text", "optimization")
def render_text(optimization: Optimization, width: int = 100, color: bool = False) -> str:
    """The terminal report as a string, the same on every machine; ``color`` adds ANSI escapes."""
    return as_string(lambda console: print_optimization(optimization, console), width, color)


class _Page(Paper):
    """Writes one optimization to one console."""

    def __init__(self, optimization: Optimization, console: Console) -> None:
        super().__init__(console)
        self.optimization = optimization

    def print(self) -> None:
        found = rows(self.optimization)
        self.line(headline(self.optimization), "bold green" if self.optimization.chosen else "bold")
        self.gap()
        self.table(found)
        self.line(f"ratio: how many times as fast as {self.optimization.plain}, the better plain format", "dim")
        self.section("Not chosen", [f"{row.name}: {visible(row.result)}." for row in found if row.result])
        self.section("Other shapes", [f"{line}." for line in other_lines(self.optimization)])
        self.section("Notes", [f"{note[:1].upper()}{note[1:]}." for note in self.optimization.notes])
        self.gap()
        for label, text in facts(self.optimization):
            self.row(f"{label:<8}", text, "dim")
        if self.optimization.plan is not None:
            self.gap()
            print_plan(self.optimization.plan, self.console)

    def table(self, found: tuple[Row, ...]) -> None:
        heads = {**HEADS, "interval": confidence_text(self.optimization.confidence)}
        columns = [name for name in HEADS if name == "name" or any(getattr(row, name) != NOTHING for row in found)]
        grid = Table.grid(padding=(0, 2, 0, 0), expand=True)
        for name in columns:
            grid.add_column(ratio=1 if name == "name" else None, justify="left" if name == "name" else "right")
        grid.add_row(*(self.text(heads[name], "dim") for name in columns))
        for row in found:
            grid.add_row(*(self.text(getattr(row, name), "bold" if row.is_chosen else "") for name in columns))
        self.console.print(grid, width=self.width, highlight=False)
