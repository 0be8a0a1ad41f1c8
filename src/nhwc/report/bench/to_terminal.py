"""The measurement on a terminal: the first sentence, a chart of ratios, the table, how it ended, and the conditions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from nhwc.report.bench.numbers import confidence_text
from nhwc.report.bench.plot import plot
from nhwc.report.bench.rows import HEADS, rows
from nhwc.report.bench.sections import MEANING, facts, sentences, stopped
from nhwc.report.bench.summary import headline, verdict
from nhwc.report.formatting import NOTHING
from nhwc.report.registry import report_format
from nhwc.report.terminal import Paper, as_string
from nhwc.timing import Verdict

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from nhwc.report.bench.rows import Row
    from nhwc.timing import Benchmark

_STYLES = {
    Verdict.FASTER: "bold green",
    Verdict.SLOWER: "bold red",
    Verdict.CANNOT_TELL: "bold",
    Verdict.UNSTABLE: "bold yellow",
    None: "bold yellow",
}
_GAP = 2


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
        """A line for each variant, without the rates if need be; where even that is too wide, its name stands above."""
        heads = {**HEADS, "interval": confidence_text(self.benchmark.confidence), "peak": "peak"}
        columns = [name for name in HEADS if any(getattr(row, name) != NOTHING for row in found)]
        lines = [{name: self.text(heads[name], "dim") for name in columns}]
        for row in found:
            style = _STYLES.get(Verdict(row.verdict)) if row.verdict in set(Verdict) else "dim"
            styles = {"verdict": style or ""}
            lines.append({name: self.text(getattr(row, name), styles.get(name, "")) for name in columns})
        widths = {name: max(line[name].cell_len for line in lines) for name in columns}
        bare = [name for name in columns if name != "rate"]
        beside = next((names for names in (columns, bare) if _total(names, widths) <= self.width), None)
        below = next((names[1:] for names in (columns, bare) if _total(names[1:], widths) <= self.width), bare[1:])
        for line in lines:
            if beside is None:
                self.console.print(line["name"], width=self.width, highlight=False)
            self._cells(beside or below, line, widths)

    def _cells(self, names: list[str], line: dict[str, Text], widths: dict[str, int]) -> None:
        """One line of the table: the name takes what the others leave, so that they end at the right edge."""
        grid = Table.grid(padding=(0, _GAP, 0, 0), expand=True)
        if names[0] != "name":
            grid.add_column(ratio=1)
        for name in names:
            if name == "name":
                grid.add_column(ratio=1, no_wrap=True)
            else:
                grid.add_column(justify="left" if name == "verdict" else "right", no_wrap=True, width=widths[name])
        grid.add_row(*([] if names[0] == "name" else [""]), *(line[name] for name in names))
        self.console.print(grid, width=self.width, highlight=False)


def _total(names: list[str], widths: dict[str, int]) -> int:
    return sum(widths[name] for name in names) + _GAP * (len(names) - 1)
