"""The measurement as versioned JSON (nhwc.schema), with the headline in it for readers that look no further."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from nhwc.report.bench.summary import headline, verdict
from nhwc.report.registry import report_format
from nhwc.schema import dump_bench

if TYPE_CHECKING:
    from nhwc.timing import Benchmark


@report_format("json", "bench")
def render_json(benchmark: Benchmark, indent: int | None = None) -> str:
    """One JSON document in one line (or indented); ``nhwc.schema.load_bench`` reads it back."""
    document = dump_bench(benchmark)
    opening = {key: document.pop(key) for key in ("format", "version")}
    found = verdict(benchmark)
    derived = {"headline": headline(benchmark), "verdict": None if found is None else found.value}
    return json.dumps({**opening, **derived, **document}, indent=indent, allow_nan=False)
