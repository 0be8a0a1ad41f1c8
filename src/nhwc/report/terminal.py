"""What every report on a terminal is written with: lines, marked rows and sections on a rich console.

User strings become rich Text, never markup, and ASCII where the console knows no more.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from nhwc.report.formatting import ascii_text

if TYPE_CHECKING:
    from collections.abc import Callable

_LEAST_COLUMNS, _USUAL_COLUMNS, _MOST_COLUMNS = 20, 80, 120


class Paper:
    """One console, written from top to bottom, as wide as the console (120 columns at most)."""

    def __init__(self, console: Console) -> None:
        self.console = console
        if console.width < _LEAST_COLUMNS:  # some terminals say that they are 0 wide
            console.width = _USUAL_COLUMNS
        self.width = min(console.width, _MOST_COLUMNS)
        self.ascii_only = console.options.ascii_only

    def text(self, text: str, style: str = "") -> Text:
        return Text(ascii_text(text) if self.ascii_only else text, style=style, overflow="fold")

    def line(self, text: str, style: str = "", indent: int = 0) -> None:
        self.console.print(Padding(self.text(text, style), (0, 0, 0, indent)), width=self.width, highlight=False)

    def gap(self) -> None:
        self.console.print()

    def rule(self) -> None:
        self.line("─" * self.width, "dim")

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


def as_string(show: Callable[[Console], None], width: int, color: bool) -> str:
    """What ``show`` prints, the same on every machine; ``color`` adds ANSI escapes."""
    output = io.StringIO()
    console = Console(
        file=output,
        width=width,
        force_terminal=color,
        force_jupyter=False,  # in a notebook rich would show every line on its own and write none to the file
        color_system="standard" if color else None,
        legacy_windows=False,
        _environ={},
    )
    show(console)
    return "".join(f"{line.rstrip()}\n" for line in output.getvalue().splitlines())
