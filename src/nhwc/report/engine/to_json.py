"""The engine's report as versioned JSON (nhwc.schema), with the headline in it for readers that look no further."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from nhwc.report.engine.summary import headline
from nhwc.report.registry import report_format
from nhwc.schema import dump_engine_report

if TYPE_CHECKING:
    from nhwc.engine_report import EngineReport


@report_format("json", "engine")
def render_json(report: EngineReport, indent: int | None = None) -> str:
    """One JSON document in one line (or indented); ``nhwc.schema.load_engine_report`` reads it back."""
    document = dump_engine_report(report)
    opening = {key: document.pop(key) for key in ("format", "version")}
    return json.dumps({**opening, "headline": headline(report), **document}, indent=indent, allow_nan=False)
