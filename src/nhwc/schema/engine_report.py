"""Versioned JSON for reports of engines: every step with its times, and the machine's limits.

A file opens with its format and version: ``{"format": "nhwc-engine-report", "version": 1, ...}``.

Change history
    1  first version.

A new optional field of nhwc.engine_report loads from older files as its default and needs no new version. Anything else
(a field renamed, removed, or with another meaning) needs one: raise ENGINE_REPORT_VERSION, add a line above, and add a
loader that turns the old document into the new one. docs/engine.md describes every field.

What follows from other fields (bounds, shares, totals) is written for readers that look no further, and made anew on
loading.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nhwc.engine_report import EngineReport
from nhwc.schema.document import load_document
from nhwc.schema.typed import DamageError, Reader, plain, within_part

ENGINE_REPORT_VERSION = 1
ENGINE_REPORT_FORMAT = "nhwc-engine-report"

_DERIVED = {"headline", "flop", "steps_ms", "fallback_ms"}
_DERIVED_OF_STEP = {"is_fallback", "flop_per_s", "bytes_per_s", "bound", "share"}

Document = dict[str, Any]


def dump_engine_report(report: EngineReport) -> Document:
    """A report as JSON-able data.

    >>> from nhwc.engine_report import CopySpeed, Limits
    >>> limits = Limits(2, 1e11, (CopySpeed(1024, 1e10),))
    >>> report = EngineReport("net", (((1, 3, 8, 8), "float32"),), 2, False, (), 1.0, 0, 0, 0, 0, 0.5, limits, "avx2")
    >>> document = dump_engine_report(report)
    >>> document["steps_ms"], load_engine_report(document) == report
    (0, True)
    """
    document = plain(report)
    for written, step in zip(document["steps"], report.steps, strict=True):
        derived = {name: getattr(step, name) for name in ("is_fallback", "flop_per_s", "bytes_per_s")}
        written.update(plain({**derived, "bound": step.bound(report.limits), "share": step.share(report.limits)}))
    totals = {name: plain(getattr(report, name)) for name in ("flop", "steps_ms", "fallback_ms")}
    return {"format": ENGINE_REPORT_FORMAT, "version": ENGINE_REPORT_VERSION, **document, **totals}


def load_engine_report(source: Mapping[str, Any] | str | Path) -> EngineReport:
    """The report in a document, in its JSON text, or in the file at a path (a str that opens with "{" is text).

    Raises SchemaError where it is not a report of an engine, is damaged, or comes from a newer nhwc.
    """
    found: EngineReport = load_document(source, ENGINE_REPORT_FORMAT, {1: _report_1}, remedy="make the report again")
    return found


def _report_1(document: Mapping[str, Any]) -> EngineReport:
    body = {key: value for key, value in document.items() if key not in {"format", "version", *_DERIVED}}
    steps = body.get("steps")
    if isinstance(steps, list):
        body["steps"] = [
            {key: value for key, value in each.items() if key not in _DERIVED_OF_STEP}
            if isinstance(each, dict)
            else each
            for each in steps
        ]
    report: EngineReport = Reader().read_fields(EngineReport, body)
    with within_part("limits"):
        if report.limits.flop_per_s <= 0 or not report.limits.copies:
            raise DamageError("expected measured limits above 0")
        if any(each.bytes_per_s <= 0 for each in report.limits.copies):
            raise DamageError("expected bandwidths above 0").within("copies")
    return report
