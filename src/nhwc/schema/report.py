"""Versioned JSON for traces and reports: what is saved loads again, exactly, on any machine and without torch.

A file opens with its format and version: ``{"format": "nhwc-report", "version": 1, ...}``.

Change history
    1  first version.

A new optional field of nhwc.model loads from older files as its default and needs no new version. Anything else
(a field renamed, removed, or with another meaning) needs one: raise VERSION, add a line above, and add a loader that
turns the old document into the new one. docs/reports.md describes every field.

Two tables keep a trace small, since most calls name the same few tensors and lines: ``tensors`` and ``sources`` hold
each once, and calls hold their row numbers. Fields of a trace at their default are left out; findings carry all theirs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nhwc.model import Finding, Report, Source, TensorMeta, Trace
from nhwc.schema.document import load_document
from nhwc.schema.typed import DamageError, Reader, check_names, plain, within_part

VERSION = 1
REPORT_FORMAT = "nhwc-report"
TRACE_FORMAT = "nhwc-trace"

_TENSOR_FIELDS = tuple(field.name for field in dataclasses.fields(TensorMeta))
_SOURCE_FIELDS = tuple(field.name for field in dataclasses.fields(Source))
_TRACE_KEYS = {"format", "version", "tensors", "tensor_fields", "sources", "source_fields"}
_DERIVED_KEYS = {"headline", "verdict", "totals"}
_REPORT_KEYS = {"format", "version", "findings", "sources", "trace", *_DERIVED_KEYS}

Document = dict[str, Any]


def dump_trace(trace: Trace) -> Document:
    """A trace as JSON-able data.

    >>> from nhwc.model import Environment
    >>> environment = Environment("2.14", "3.11", "cpu", "x86", 2, "0.1")
    >>> trace = Trace("net", "eager", False, environment, ())
    >>> dump_trace(trace)["format"], load_trace(dump_trace(trace)) == trace
    ('nhwc-trace', True)
    """
    tables = _Tables()
    body = tables.write_fields(trace)
    return {
        "format": TRACE_FORMAT,
        "version": VERSION,
        "tensor_fields": list(_TENSOR_FIELDS),
        "tensors": [[plain(getattr(row, name)) for name in _TENSOR_FIELDS] for row in tables.tensors],
        "source_fields": list(_SOURCE_FIELDS),
        "sources": [[getattr(row, name) for name in _SOURCE_FIELDS] for row in tables.sources],
        **body,
    }


def dump_report(report: Report) -> Document:
    """A report as JSON-able data: totals and findings first, then the trace they were found in.

    ``source`` of a finding is "file:line"; ``sources`` holds the text and the function of each such line.
    """
    labels: dict[Source, str] = {}
    findings: list[Document] = []
    for finding in report.findings:
        row = {field.name: plain(getattr(finding, field.name)) for field in dataclasses.fields(finding)}
        row["source"] = None if finding.source is None else _label(finding.source, labels)
        findings.append(row)
    return {
        "format": REPORT_FORMAT,
        "version": VERSION,
        "totals": plain(
            {
                "culprits": len(report.culprits),
                "lost_ms": report.lost_ms,
                "lost_bytes": report.lost_bytes,
                "lost_share": report.lost_share,
                "kernel_ms": report.kernel_ms,
            }
        ),
        "findings": findings,
        "sources": {label: dataclasses.asdict(source) for source, label in labels.items()},
        "trace": dump_trace(report.trace),
    }


def load_trace(source: Mapping[str, Any] | str | Path) -> Trace:
    """The trace in a document, in its JSON text, or in the file at a path (a str that opens with "{" is text).

    Raises SchemaError where it is not a trace of ours, is damaged, or comes from a newer nhwc.
    """
    trace: Trace = load_document(source, TRACE_FORMAT, {1: _trace_1}, remedy="record it again")
    return trace


def load_report(source: Mapping[str, Any] | str | Path) -> Report:
    """The report in a document, in its JSON text, or in the file at a path (a str that opens with "{" is text).

    Raises SchemaError where it is not a report of ours, is damaged, or comes from a newer nhwc.
    """
    report: Report = load_document(source, REPORT_FORMAT, {1: _report_1}, remedy="record it again")
    return report


class _Tables:
    """Rows of the tables of one trace, each value once, in order of first use."""

    def __init__(self) -> None:
        self.tensors: dict[TensorMeta, int] = {}
        self.sources: dict[Source, int] = {}

    def write(self, value: object) -> Any:
        if isinstance(value, TensorMeta):
            return self.tensors.setdefault(value, len(self.tensors))
        if isinstance(value, Source):
            return self.sources.setdefault(value, len(self.sources))
        if isinstance(value, tuple | list):
            return [self.write(item) for item in value]
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return self.write_fields(value)
        return plain(value)

    def write_fields(self, value: Any) -> Document:
        items = ((field, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {field.name: self.write(item) for field, item in items if item != field.default}


def _label(source: Source, labels: dict[Source, str]) -> str:
    """ "file:line", with a number after it where one line holds two functions (a lambda)."""
    if source not in labels:
        taken, label, count = set(labels.values()), str(source), 1
        while label in taken:
            count += 1
            label = f"{source} ({count})"
        labels[source] = label
    return labels[source]


def _trace_1(document: Mapping[str, Any]) -> Trace:
    reader = Reader()
    tables = {
        TensorMeta: reader.read_table(document, TensorMeta, "tensors", "tensor_fields"),
        Source: reader.read_table(document, Source, "sources", "source_fields"),
    }
    body = {key: value for key, value in document.items() if key not in _TRACE_KEYS}
    trace: Trace = Reader(tables).read_fields(Trace, body)
    return trace


def _report_1(document: Mapping[str, Any]) -> Report:
    reader = Reader()
    check_names(document, _REPORT_KEYS, _REPORT_KEYS - _DERIVED_KEYS)
    if not isinstance(document["trace"], Mapping):
        raise DamageError("expected an object").within("trace")
    lines, findings = document["sources"], []
    for index, row in enumerate(reader.read(tuple[object, ...], document["findings"])):
        with within_part("findings"), within_part(index):
            label = row.get("source") if isinstance(row, Mapping) else None
            if label is not None:
                if not isinstance(lines, Mapping) or label not in lines:
                    raise DamageError(f"source {label!r} is not in sources")
                row = {**row, "source": lines[label]}  # noqa: PLW2901
            findings.append(reader.read_fields(Finding, row))
    return Report(load_trace(document["trace"]), findings)
