"""What the doctor found, for a terminal and as versioned JSON.

A document opens with ``{"format": "nhwc-health", "version": 1, ...}``; docs/doctor.md describes every field.
Change history: 1 first version.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table

from nhwc.health import State
from nhwc.report.formatting import plural, visible
from nhwc.report.registry import report_format
from nhwc.report.terminal import Paper, as_string
from nhwc.schema.typed import plain

if TYPE_CHECKING:
    from rich.console import Console

    from nhwc.health import Fact, Health

VERSION = 1
_FORMAT = "nhwc-health"
_STYLES = {State.FINE: "green", State.BETTER: "yellow", State.WRONG: "bold red", State.UNKNOWN: "dim"}
_JUDGED = ((State.WRONG, "wrong"), (State.BETTER, "could be better"), (State.UNKNOWN, "not known"))


def headline(health: Health) -> str:
    """The whole examination in one sentence.

    >>> from nhwc.health import AllocatorGain, Fact, Health
    >>> from nhwc.model import Environment
    >>> facts = (Fact("threads", "cores", "2", State.FINE), Fact("memory", "limit", "?", State.UNKNOWN, "look"))
    >>> headline(Health(Environment("2.14", "3.11", "cpu", "x86", 2, "0.1"), facts, AllocatorGain(), 1.0))
    'Of 2 facts 1 is fine, 1 not known.'
    """
    count, fine = len(health.facts), len(health.of_state(State.FINE))
    if fine == count:
        return f"Nothing to change: {plural(count, 'fact')} looked at, all fine."
    told = [f"{len(found)} {words}" for state, words in _JUDGED if (found := health.of_state(state))]
    return f"Of {plural(count, 'fact')} {fine} {'is' if fine == 1 else 'are'} fine, {', '.join(told)}."


def print_health(health: Health, console: Console) -> None:
    """Print an examination to a console, as wide as that is (120 columns at most)."""
    _Page(health, console).print()


@report_format("text", "doctor")
def render_text(health: Health, width: int = 100, color: bool = False) -> str:
    """The examination as a terminal shows it; ``color`` adds ANSI escapes."""
    return as_string(lambda console: print_health(health, console), width, color)


@report_format("json", "doctor")
def render_json(health: Health, indent: int | None = None) -> str:
    """One JSON document: every fact with its state, and the raw samples of the measurement."""
    document = {"format": _FORMAT, "version": VERSION, "headline": headline(health), **plain(health)}
    return json.dumps(document, indent=indent, allow_nan=False)


class _Page(Paper):
    """Writes one examination to one console."""

    def __init__(self, health: Health, console: Console) -> None:
        super().__init__(console)
        self.health = health

    def print(self) -> None:
        worst = next((state for state, _ in _JUDGED if self.health.of_state(state)), State.FINE)
        self.line(headline(self.health), _STYLES[worst])
        names = max((len(fact.name) for fact in self.health.facts), default=0)
        for subject, facts in self.health.subjects():
            self.gap()
            self.line(subject, "bold")
            for fact in facts:
                self.fact(fact, names)

    def fact(self, fact: Fact, names: int) -> None:
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(width=len(State.BETTER))
        grid.add_column(width=names)
        grid.add_column(overflow="fold")
        grid.add_row(self.text(fact.state, _STYLES[fact.state]), self.text(fact.name), self.text(visible(fact.value)))
        for line in (fact.advice, fact.source):
            if line:
                grid.add_row(
                    "", "", self.text(f"→ {visible(line)}", _STYLES[fact.state] if line is fact.advice else "dim")
                )
        self.console.print(Padding(grid, (0, 0, 0, 2)), width=self.width, highlight=False)
