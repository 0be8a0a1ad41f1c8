"""The optimization as versioned JSON (nhwc.schema), with the headline in it for readers that look no further."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from nhwc.report.optimization.summary import headline
from nhwc.report.registry import report_format
from nhwc.schema import dump_optimization

if TYPE_CHECKING:
    from nhwc.optimization_report import Optimization


@report_format("json", "optimization")
def render_json(optimization: Optimization, indent: int | None = None) -> str:
    """One JSON document in one line (or indented); ``nhwc.schema.load_optimization`` reads it back."""
    document = dump_optimization(optimization)
    opening = {key: document.pop(key) for key in ("format", "version")}
    return json.dumps({**opening, "headline": headline(optimization), **document}, indent=indent, allow_nan=False)
