"""The report on a terminal: the first sentence, a table of culprits with their advice, notes, and what was not seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from nhwc.report.culprits import consequences_text, culprits, kernel_text, notes
from nhwc.report.formatting import finding_text, ms_text, plural, shorten, visible
from nhwc.report.registry import report_format
from nhwc.report.sections import confusions, facts, limits
from nhwc.report.summary import Verdict, headline, verdict
from nhwc.report.terminal import Paper, as_string
from nhwc.report.totals import Row, columns

if TYPE_CHECKING:
    from rich.console import Console

    from nhwc.model import Report
    from nhwc.report.culprits import Culprit

_INDENT = 4
_STYLES = {
    Verdict.RAISES: "bold red",
    Verdict.WRONG: "bold red",
    Verdict.LOST: "bold yellow",
    Verdict.UNUSED: "bold yellow",
    Verdict.CLEAN: "bold green",
}


def print_report(report: Report, console: Console) -> None:
    """Print a report to a console, as wide as the console (120 columns at most), in ASCII where it knows no more."""
    _Page(report, console).print()


@report_format("text")
def render_text(report: Report, width: int = 100, color: bool = False) -> str:
    """The terminal report as a string, the same on every machine; ``color`` adds ANSI escapes.

    >>> from nhwc.model import Environment, Report, Trace
    >>> trace = Trace("net", "eager", False, Environment("2.14", "3.11", "cpu", "x86", 2, "0.1"), ())
    >>> print(render_text(Report(trace)).splitlines()[0])
    Not in channels last: none of the 0 operator calls wrote a 4-D or 5-D tensor in channels last.
    """
    return as_string(lambda console: print_report(report, console), width, color)


class _Page(Paper):
    """Writes one report to one console."""

    def __init__(self, report: Report, console: Console) -> None:
        super().__init__(console)
        self.report = report

    def print(self) -> None:
        found = culprits(self.report)
        self.line(headline(self.report), _STYLES[verdict(self.report)])
        if found:
            self.table(found)
        self.findings_below(notes(self.report), "Notes")
        self.section("Not seen", limits(self.report))
        self.section("Not sure", confusions(self.report))
        self.gap()
        for label, text in facts(self.report):
            self.row(f"{label:<9}", text, "dim")

    def cut(self, text: str, style: str, indent: int = _INDENT) -> None:
        """A line that is shortened in its middle rather than wrapped."""
        self.line(shorten(text, self.width - indent - 2), style, indent)

    def table(self, found: list[Culprit]) -> None:
        texts = columns(self.report, found)
        heads = Row("calls", texts.byte_unit, "ms", "share")
        rows = [heads, *texts.own, *(row for row in texts.after if row), texts.total]
        widths = [
            max(self.text(getattr(row, name)).cell_len for row in rows) for name in ("calls", "bytes", "ms", "share")
        ]
        self.gap()
        self.numbers("#", self.text("culprit"), heads, widths, "bold")
        self.rule()
        for place, culprit in enumerate(found):
            if place:
                self.gap()
            label = self.text(culprit.title, "bold red" if culprit.first.severity == "error" else "bold")
            self.numbers(str(culprit.rank), label, texts.own[place], widths)
            self.details(culprit)
            after = texts.after[place]
            if after is not None:
                self.numbers("", self.text(consequences_text(culprit)), after, widths, "dim")
        self.rule()
        self.numbers("", self.text("total"), texts.total, widths, "bold")
        saving = self.report.kernel_ms
        if saving is not None and saving > 0:
            self.row("→", f"with nhwc.kernels.use(): all kernels together would save {ms_text(saving)}", "green")

    def numbers(self, rank: str, label: Text, row: Row, widths: list[int], style: str = "") -> None:
        grid = Table.grid(padding=(0, 2, 0, 0), expand=True)
        grid.add_column(width=_INDENT - 2)
        grid.add_column(ratio=1, overflow="fold")
        for width in widths:
            grid.add_column(width=width, justify="right", no_wrap=True)
        cells = [self.text(text) for text in (row.calls, row.bytes, row.ms, row.share)]
        grid.add_row(Text(rank, style="dim"), label, *cells, style=style)
        self.console.print(grid, width=self.width, highlight=False)

    def details(self, culprit: Culprit) -> None:
        text = finding_text(culprit.first)
        self.cut(culprit.modules, "cyan")
        self.cut(text.source, "")
        if text.line:
            self.cut(text.line, "italic", _INDENT + 2)
        if culprit.first.message:
            self.line(f"{culprit.first.code}: {visible(culprit.first.message)}", "", _INDENT)
        for advice in culprit.advice:
            self.row("→", advice, "green", _INDENT)
        kernel = kernel_text(culprit)
        if kernel:
            self.row("→", f"kernel: {kernel}", "green", _INDENT)

    def findings_below(self, found: list[Culprit], title: str) -> None:
        if not found:
            return
        self.gap()
        self.line(title, "bold")
        for culprit in found:
            first = culprit.first
            places = f" ({plural(len(culprit.findings), 'place')})" if len(culprit.findings) > 1 else ""
            self.row("•", f"{first.code}: {visible(first.message)}{places}")
            if first.source or first.module:
                self.cut(f"{culprit.modules} · {finding_text(first).source}", "dim", 2)
            for advice in culprit.advice:
                self.row("→", advice, "green", 2)
