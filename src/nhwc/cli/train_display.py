"""How a training run shows itself: lines in a pipe, lines above a live bar on a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress

JSON = "json"


@contextmanager
def showing(format_: str) -> Iterator[list[Any]]:
    """The sinks of a run for stdout, in the format "text" or "json"; a live bar joins text on a terminal."""
    from nhwc import api

    if os.environ.get("RANK", "0") != "0":  # one process of several speaks
        yield []
    elif format_ == JSON:
        yield [api.JsonLog(_write)]
    elif not sys.stdout.isatty():
        yield [api.TextLog(_write)]
    else:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(highlight=False, soft_wrap=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True) as bar:
            yield [_Live(bar, api.TextLog(lambda line: bar.console.print(_encodable(line), markup=False)))]


def _write(line: str) -> None:
    sys.stdout.write(_encodable(line) + "\n")
    sys.stdout.flush()


def _encodable(line: str) -> str:
    """``line`` with escapes for what stdout cannot encode: a name in it must not end the run."""
    encoding = sys.stdout.encoding or "utf-8"
    return line.encode(encoding, "backslashreplace").decode(encoding)


class _Live:
    """A bar for the epoch, and lines above it."""

    def __init__(self, bar: Progress, lines: Any) -> None:
        self._bar = bar
        self._task = bar.add_task("starting", total=None)
        self.note, self.step, self.evaluation = lines.note, lines.step, lines.evaluation

    def advance(self, stage: str, done: int, total: int) -> None:
        self._bar.update(self._task, description=stage, completed=done, total=total)

    def close(self) -> None:
        """The bar goes with its block."""
