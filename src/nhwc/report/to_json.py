"""The report as versioned JSON (nhwc.schema), with the headline in it for readers that look no further."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from nhwc.report.registry import report_format
from nhwc.report.summary import headline, verdict
from nhwc.schema import dump_report

if TYPE_CHECKING:
    from nhwc.model import Report


@report_format("json")
def render_json(report: Report, indent: int | None = None) -> str:
    """One JSON document in one line (or indented); ``nhwc.schema.load_report`` reads it back.

    >>> from nhwc.model import Environment, Report, Trace
    >>> trace = Trace("net", "eager", False, Environment("2.14", "3.11", "cpu", "x86", 2, "0.1"), ())
    >>> json.loads(render_json(Report(trace)))["verdict"]
    'not in channels last'
    """
    document = dump_report(report)
    opening = {key: document.pop(key) for key in ("format", "version")}
    derived = {"headline": headline(report), "verdict": verdict(report).value}
    return json.dumps({**opening, **derived, **document}, indent=indent, allow_nan=False)
