"""``nhwc bench --compare A.json B.json``: what changed between two saved measurements."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from nhwc.cli import output
from nhwc.errors import TargetError

_FORMATS = ("json", output.TEXT)


def compare(first: Path, second: Path, paths: Sequence[Path], format_: str | None) -> None:
    """Print how each ratio changed. Raises TargetError, with every reason, where the two cannot be compared."""
    from nhwc.report.bench import comparison
    from nhwc.schema import load_bench

    files = output.plan_files(paths, format_, _FORMATS)
    one, other = load_bench(first), load_bench(second)
    reasons = comparison.refusals(one, other)
    if reasons:
        raise TargetError(f"{first} and {second} cannot be compared: {'; '.join(reasons)}")

    def render(format_: str) -> str:
        if format_ == "json":
            return json.dumps(comparison.as_document(one, other), indent=1) + "\n"
        return comparison.render_text(one, other)

    output.emit(
        render,
        lambda console: console.print(render(output.TEXT).rstrip("\n"), markup=False, highlight=False, soft_wrap=True),
        files,
        format_,
    )
