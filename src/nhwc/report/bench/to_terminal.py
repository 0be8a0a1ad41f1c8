"""The measurement on a terminal: the first sentence, a chart of ratios, the table, how it ended, and the conditions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from nhwc.report.bench.numbers import confidence_text
from nhwc.report.bench.plot import plot
from nhwc.report.bench.rows import HEADS, rows
from nhwc.report.bench.sections import MEANING, facts, sentences, stopped
from nhwc.report.bench.summary import headline, verdict
from nhwc.report.registry import report_format
from nhwc.report.terminal import Paper, as_string
from nhwc.timing import Verdict

if TYPE_CHECKING:
    from rich.console import Console

    from nhwc.report.bench.rows import Row
    from nhwc.timing import Benchmark

_STYLES = {
    Verdict.FASTER: "bold green",
    Verdict.SLOWER: "bold red",
    Verdict.CANNOT_TELL: "bold",
    Verdict.UNSTABLE: "bold yellow",
    None: "bold yellow",
}
_WIDE = 96


def print_benchmark(benchmark: Benchmark, console: Console) -> None:
    """Print a measurement, as wide as the console (120 columns at most), in ASCII where it knows no more."""
    _Page(benchmark, console).print()


@report_format("text", "bench")
def render_text(benchmark: Benchmark, width: int = 100, color: bool = False) -> str:
    """The terminal report as a string, the same on every machine; ``color`` adds ANSI escapes."""
    return as_string(lambda console: print_benchmark(benchmark, console), width, color)


class _Page(Paper):
    """Writes one measurement to one console."""

    def __init__(self, benchmark: Benchmark, console: Console) -> None:
        super().__init__(console)
        self.benchmark = benchmark

    def print(self) -> None:
        benchmark, found = self.benchmark, rows(self.benchmark)
        self.line(headline(benchmark), _STYLES[verdict(benchmark)])
        self.section("What moved under the measurement", sentences(benchmark.unstable))
        self.chart(found)
        self.gap()
        self.table(found)
        for row in found:
            if row.failure:
                self.row("•", f"{row.name} did not run: {row.failure}.")
        self.gap()
        self.line(stopped(benchmark))
        self.line(MEANING, "dim")
        self.section("Notes", sentences(benchmark.notes))
        self.gap()
        for label, text in facts(benchmark):
            self.row(f"{label:<9}", text, "dim")

    def chart(self, found: tuple[Row, ...]) -> None:
        lines = plot(found, self.width)
        if lines:
            self.gap()
            for line in lines:
                self.console.print(self.text(line), width=self.width, highlight=False, no_wrap=True, overflow="crop")

    def table(self, found: tuple[Row, ...]) -> None:
        names = [name for name in HEADS if self.width >= _WIDE or name != "rate"]
        names = [name for name in names if any(getattr(row, name) != "–" for row in found)]
        grid = Table.grid(padding=(0, 2, 0, 0), expand=True)
        for name in names:
            if name == "name":
                grid.add_column(ratio=1, overflow="fold")
            else:
                grid.add_column(justify="left" if name == "verdict" else "right", no_wrap=True)
        heads = {**HEADS, "interval": confidence_text(self.benchmark.confidence), "peak": "peak"}
        grid.add_row(*(self.text(heads[name], "dim") for name in names))
        for row in found:
            style = _STYLES.get(Verdict(row.verdict)) if row.verdict in set(Verdict) else "dim"
            cells = [self.text(getattr(row, name), style or "" if name == "verdict" else "") for name in names]
            grid.add_row(*cells)
        self.console.print(grid, width=self.width, highlight=False)
