"""The survey as versioned JSON (nhwc.schema), with the headline in it for readers that look no further."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from nhwc.report.ops.summary import headline
from nhwc.report.registry import report_format
from nhwc.schema import dump_ops

if TYPE_CHECKING:
    from nhwc.operators import Survey


@report_format("json", "ops")
def render_json(survey: Survey, indent: int | None = None) -> str:
    """One JSON document, a line for each row (or indented); ``nhwc.ops.load`` reads it back."""
    document = dump_ops(survey)
    opening = {key: document.pop(key) for key in ("format", "version")}
    document = {**opening, "headline": headline(survey), **document}
    if indent is not None:
        return json.dumps(document, indent=indent, allow_nan=False)
    rows = ",\n".join(json.dumps(row, allow_nan=False) for row in document.pop("rows"))
    return f'{json.dumps(document, allow_nan=False)[:-1]},\n"rows": [\n{rows}\n]}}\n'
