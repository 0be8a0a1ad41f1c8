"""A plan as versioned JSON (nhwc.schema) that is easy to read and edit: a line for each placement, move and input."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from nhwc.report.registry import report_format
from nhwc.schema import dump_plan

if TYPE_CHECKING:
    from nhwc.plan import Plan

_ROWS = ("inputs", "placements", "moves")


@report_format("json", "plan")
def render_json(plan: Plan) -> str:
    """One JSON document; ``nhwc.schema.load_plan`` reads it back."""
    lines = []
    for name, value in dump_plan(plan).items():
        text = json.dumps(value, allow_nan=False)
        if name in _ROWS and value:
            inner = ",\n".join(f"    {json.dumps(row, allow_nan=False)}" for row in value)
            text = f"[\n{inner}\n  ]"
        lines.append(f"  {json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(lines) + "\n}\n"
