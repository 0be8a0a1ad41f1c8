"""The report on a terminal: the first sentence, a table of culprits with their advice, notes, and what was not seen."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from nhwc.report.culprits import consequences_text, culprits, notes
from nhwc.report.formatting import ascii_text, finding_text, plural, shorten, visible
from nhwc.report.registry import report_format
from nhwc.report.sections import confusions, facts, limits
from nhwc.report.summary import Verdict, headline, verdict
from nhwc.report.totals import Row, columns

if TYPE_CHECKING:
    from nhwc.model import Report
    from nhwc.report.culprits import Culprit

_INDENT = 4
_MOST_COLUMNS = 120
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
    output = io.StringIO()
    console = Console(
        file=output,
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        legacy_windows=False,
        _environ={},
    )
    print_report(report, console)
    return "".join(f"{line.rstrip()}\n" for line in output.getvalue().splitlines())


class _Page:
    """Writes one report to one console. User strings become rich Text, never markup."""

    def __init__(self, report: Report, console: Console) -> None:
        self.report = report
        self.console = console
        self.width = min(console.width, _MOST_COLUMNS)
        self.ascii_only = console.options.ascii_only

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

    def text(self, text: str, style: str = "") -> Text:
        return Text(ascii_text(text) if self.ascii_only else text, style=style, overflow="fold")

    def line(self, text: str, style: str = "", indent: int = 0) -> None:
        self.console.print(Padding(self.text(text, style), (0, 0, 0, indent)), width=self.width, highlight=False)

    def cut(self, text: str, style: str, indent: int = _INDENT) -> None:
        """A line that is shortened in its middle rather than wrapped."""
        self.line(shorten(text, self.width - indent - 2), style, indent)

    def gap(self) -> None:
        self.console.print()

    def row(self, first: str, text: str, style: str = "", indent: int = 0) -> None:
        """A mark or label, and a text that wraps beside it."""
        grid = Table.grid(padding=(0, 1, 0, 0))
        label = self.text(first, style)
        grid.add_column(width=label.cell_len)
        grid.add_column(overflow="fold")
        grid.add_row(label, self.text(text, style))
        self.console.print(Padding(grid, (0, 0, 0, indent)), width=self.width, highlight=False)

    def section(self, title: str, sentences: list[str]) -> None:
        if sentences:
            self.gap()
            self.line(title, "bold")
            for sentence in sentences:
                self.row("•", sentence)

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

    def rule(self) -> None:
        self.line("─" * self.width, "dim")

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
