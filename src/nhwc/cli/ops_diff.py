"""``nhwc ops --diff OLD.json NEW.json``: what changed between two saved tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import typer

from nhwc.cli import output
from nhwc.cli.exits import ExitCode, say

_FORMATS = ("json", output.TEXT)


def compare(old: Path, new: Path, paths: Sequence[Path], given: str | None, *, fail_worse: bool) -> None:
    """Print every change, the worst first. Exits with 1 where ``fail_worse`` holds."""
    from nhwc.report.ops.changes import Kind, as_document, changes
    from nhwc.report.ops.to_terminal import print_changes
    from nhwc.report.terminal import as_string
    from nhwc.schema import load_ops

    files = output.plan_files(paths, given, _FORMATS)
    one, other = load_ops(old), load_ops(new)
    found = changes(one, other)

    def render(format_: str) -> str:
        if format_ == "json":
            return json.dumps(as_document(found, one, other), indent=1) + "\n"
        return as_string(lambda console: print_changes(found, one, other, console), 120, color=False)

    output.emit(render, lambda console: print_changes(found, one, other, console), files, given)
    worse = [change for change in found if change.kind in (Kind.WORSE, Kind.GONE)]
    if fail_worse and worse:
        say(f"--fail-worse: {len(worse)} of {len(found)} changes are for the worse, first {worse[0].name}")
        raise typer.Exit(ExitCode.CONDITION_HOLDS)
