"""The table on a terminal: the first sentence, a line for each operator, what changed between two tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from nhwc.operators import Handling
from nhwc.report.bench.numbers import ratio_text
from nhwc.report.formatting import plural, visible
from nhwc.report.ops.changes import Kind, left_out
from nhwc.report.ops.rows import dtypes_text, handling_text, lines, speed_text, timed_dtypes, values_text, why_text
from nhwc.report.ops.summary import headline, sentences, where
from nhwc.report.registry import report_format
from nhwc.report.terminal import Paper, as_string
from nhwc.timing import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.text import Text

    from nhwc.operators import OperatorRow, Pass, Speed, Survey
    from nhwc.report.ops.changes import Change
    from nhwc.report.ops.rows import Line

_STYLES = {
    Handling.KEEPS: "green",
    Handling.VIEW: "dim",
    Handling.NO_FORMAT: "dim",
    Handling.COPIES: "yellow",
    Handling.SOMETIMES: "yellow",
    Handling.LOSES: "red",
    Handling.REFUSES: "bold red",
}
_SPEED_STYLES = {Verdict.FASTER: "green", Verdict.SLOWER: "red"}
_KIND_STYLES = {Kind.WORSE: "red", Kind.GONE: "yellow", Kind.BETTER: "green", Kind.NEW: "dim"}
_FEW = 40
_NAME, _WIDE = 16, 110  # columns: the least for a name, and from where on intervals have a place


def print_survey(survey: Survey, console: Console) -> None:
    """Print a table, as wide as the console (120 columns at most), in ASCII where it knows no more."""
    _Page(survey, console).print()


def print_changes(found: Sequence[Change], old: Survey, new: Survey, console: Console) -> None:
    """Print what changed from one survey to another."""
    paper = Paper(console)
    paper.line(f"From {where(old)}", "dim")
    paper.line(f"to {where(new)}", "dim")
    counts = {kind: sum(change.kind == kind for change in found) for kind in Kind}
    told = ", ".join(f"{count} {kind.value}" for kind, count in counts.items() if count)
    paper.line(f"{plural(len(found), 'change')}: {told}." if found else "Nothing changed.", "bold")
    note = left_out(old, new)
    if note:
        paper.line(f"{visible(note[:1].upper() + note[1:])}.")
    grid = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(4):
        grid.add_column(overflow="fold")
    for change in found:
        place = f"{change.dims}-D {change.dtype}" + (f" {change.mode}" if change.mode != "eager" else "")
        grid.add_row(
            paper.text(change.kind.value, _KIND_STYLES[change.kind]),
            paper.text(f"{visible(change.name)}, {place}"),
            paper.text(change.what),
            paper.text(" → ".join(filter(None, (change.before, change.after)))),
        )
    paper.console.print(grid, width=paper.width, highlight=False)


@report_format("text", "ops")
def render_text(survey: Survey, width: int = 120, color: bool = False) -> str:
    """The table as a terminal shows it; ``color`` adds ANSI escapes."""
    return as_string(lambda console: print_survey(survey, console), width, color)


class _Page(Paper):
    """Writes one survey to one console."""

    def __init__(self, survey: Survey, console: Console) -> None:
        super().__init__(console)
        self.survey = survey
        self.names_dtypes = len(timed_dtypes(survey)) > 1

    def print(self) -> None:
        survey = self.survey
        self.line(headline(survey), "bold")
        for sentence in sentences(survey):
            self.line(f"{sentence[:1].upper()}{sentence[1:]}.")
        shown = lines(survey.rows)
        if shown:
            self.gap()
            self.table(shown)
        explained = shown if len(shown) <= _FEW else [line for line in shown if line.first.is_wrong]
        self.section(
            "Why", [f"{visible(row.name)}, {row.dims}-D {row.dtype}: {why}" for row, why in self.whys(explained)]
        )
        self.section("Not surveyed", [f"{visible(each.name)}: {visible(each.reason)}" for each in survey.failures])
        self.section("Notes", [f"{note[:1].upper()}{note[1:]}." for note in survey.notes])
        self.gap()
        self.line(where(survey), "dim")

    @staticmethod
    def whys(shown: Sequence[Line]) -> list[tuple[OperatorRow, str]]:
        return [(line.first, why) for line in shown if (why := why_text(line.first))]

    def table(self, shown: Sequence[Line]) -> None:
        timed = any(row.speeds for line in shown for row in line.rows)
        several = len(self.survey.modes) > 1
        served = any(line.first.kernels for line in shown)
        titles = ["operator", "dims", "dtypes", *(["mode"] if several else []), *(["kernel"] if served else [])]
        titles += ["forward", "backward", "expanded", "values", *(["speed", "and back"] if timed else [])]
        has_room = self.width >= _WIDE + _NAME * (several + served)
        table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim", pad_edge=False)
        for place, title in enumerate(titles):
            table.add_column(title, overflow="fold", min_width=_NAME if place == 0 else None)
        for line in shown:
            row = line.first
            cells = [
                self.text(visible(row.name)),
                self.text(f"{row.dims}-D"),
                self.text(dtypes_text(line, self.survey)),
            ]
            cells += [self.text(row.mode)] if several else []
            cells += [self.text(line.kernels, "" if row.kernels else "dim")] if served else []
            cells += [self.handling(each) for each in (row.forward, row.backward, row.expanded)]
            cells.append(self.text(values_text(row), "red" if row.is_wrong else "dim"))
            if timed:
                cells += [self.speeds(line.speeds(what), has_room) for what in ("forward", "forward and backward")]
            table.add_row(*cells)
        self.console.print(table, width=self.width, highlight=False)

    def handling(self, found: Pass | None) -> Text:
        return self.text(handling_text(found), "dim" if found is None else _STYLES[found.handling])

    def speeds(self, found: Sequence[tuple[str, Speed]], has_room: bool) -> Text:
        """Every dtype that was measured with its interval, or the ratio of the first alone."""
        if not found:
            return self.text(speed_text(None), "dim")
        told = self.text("")
        for place, (name, speed) in enumerate(found if has_room else found[:1]):
            dtype = f"{name} " if self.names_dtypes else ""
            text = f"{dtype}{speed_text(speed)}" if has_room else ratio_text(speed.ratio)
            told.append("\n" if place else "")
            told.append_text(self.text(text, _SPEED_STYLES.get(speed.verdict, "dim")))
        return told
