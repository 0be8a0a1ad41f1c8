"""The summary of a suite as JSON: a row for each model and mode, without the samples, which their own files keep."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from nhwc.report.registry import report_format
from nhwc.report.suite.summary import headlines, row_text
from nhwc.schema.typed import plain

if TYPE_CHECKING:
    from nhwc.suite import SuiteResult, SuiteRow

VERSION = 1


@report_format("json", "suite")
def render_json(result: SuiteResult, indent: int | None = 1) -> str:
    """One JSON document; docs/bench.md describes its fields."""
    document = {
        "format": "nhwc-suite-summary",
        "version": VERSION,
        "suite": result.suite,
        "headlines": headlines(result),
        "settings": dict(result.settings),
        "conditions": plain(result.conditions),
        "missing": result.missing,
        "rows": [_row(row) for row in result.rows],
    }
    return json.dumps(document, indent=indent, allow_nan=False)


def _row(row: SuiteRow) -> dict[str, Any]:
    text = row_text(row)
    medians = {}
    if row.benchmark is not None:
        medians = {variant.name: variant.median_ms for variant in row.benchmark.variants}
    return {
        "model": row.model,
        "mode": row.mode,
        "ratio": None if row.ratio is None else plain(dataclasses.asdict(row.ratio)),
        "verdict": None if row.verdict is None else row.verdict.value,
        "unstable": [] if row.benchmark is None else list(row.benchmark.unstable),
        "claim": None if row.claim is None else plain(dataclasses.asdict(row.claim)),
        "standing": text.standing,
        "median_ms": plain(medians),
        "failure": text.failure,
    }
