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

import contextlib
import dataclasses
import functools
import itertools
import json
import math
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from enum import Enum
from pathlib import Path
from typing import Any

from nhwc.errors import SchemaError
from nhwc.model import Finding, Report, Source, TensorMeta, Trace

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
        "tensors": [[_plain(getattr(row, name)) for name in _TENSOR_FIELDS] for row in tables.tensors],
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
        row = {field.name: _plain(getattr(finding, field.name)) for field in dataclasses.fields(finding)}
        row["source"] = None if finding.source is None else _label(finding.source, labels)
        findings.append(row)
    return {
        "format": REPORT_FORMAT,
        "version": VERSION,
        "totals": _plain(
            {
                "culprits": len(report.culprits),
                "lost_ms": report.lost_ms,
                "lost_bytes": report.lost_bytes,
                "lost_share": report.lost_share,
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
    trace: Trace = _load(source, TRACE_FORMAT)
    return trace


def load_report(source: Mapping[str, Any] | str | Path) -> Report:
    """The report in a document, in its JSON text, or in the file at a path (a str that opens with "{" is text).

    Raises SchemaError where it is not a report of ours, is damaged, or comes from a newer nhwc.
    """
    report: Report = _load(source, REPORT_FORMAT)
    return report


# Writing


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
        return _plain(value)

    def write_fields(self, value: Any) -> Document:
        items = ((field, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {field.name: self.write(item) for field, item in items if item != field.default}


def _plain(value: object) -> Any:
    """JSON has no tuples, enums, infinity or nan."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return value


def _label(source: Source, labels: dict[Source, str]) -> str:
    """ "file:line", with a number after it where one line holds two functions (a lambda)."""
    if source not in labels:
        taken, label, count = set(labels.values()), str(source), 1
        while label in taken:
            count += 1
            label = f"{source} ({count})"
        labels[source] = label
    return labels[source]


# Reading


class _DamageError(Exception):
    """What is wrong, and the path to it, built up on the way out."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.path: list[str | int] = []

    def within(self, part: str | int) -> _DamageError:
        self.path.insert(0, part)
        return self

    def __str__(self) -> str:
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.path).lstrip(".")
        return f"{place}: {self.what}" if place else self.what


class _Reader:
    """Reads JSON back by the types that nhwc.model declares; table types are row numbers."""

    def __init__(self, tables: Mapping[Any, list[Any]] | None = None) -> None:
        self.tables = tables or {}

    def read(self, hint: Any, value: Any) -> Any:
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin is types.UnionType:
            return None if value is None else self.read(arguments[0], value)
        if origin is tuple:
            hints = itertools.repeat(arguments[0]) if arguments[-1] is Ellipsis else arguments
            return self.read_list(hints, value)
        if hint is object:
            return _from_json(value)
        if hint in self.tables:
            rows = self.tables[hint]
            if type(value) is not int or not 0 <= value < len(rows):
                raise _DamageError(f"expected a row number below {len(rows)}, got {value!r}")
            return rows[value]
        if dataclasses.is_dataclass(hint):
            return self.read_fields(hint, value)
        if issubclass(hint, Enum):
            known = [item.value for item in hint]
            if value not in known:
                raise _DamageError(f"expected one of {', '.join(known)}, got {value!r}")
            return hint(value)
        return _scalar(hint, value)

    def read_list(self, hints: Iterable[Any], value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list) or (isinstance(hints, tuple) and len(value) != len(hints)):
            expected = f"a list of {len(hints)}" if isinstance(hints, tuple) else "a list"
            raise _DamageError(f"expected {expected}, got {str(value)[:60]!r}")
        items: list[Any] = []
        try:
            for hint, item in zip(hints, value, strict=False):
                items.append(item if type(item) is hint is int else self.read(hint, item))
        except _DamageError as damage:
            raise damage.within(len(items)) from None
        return tuple(items)

    def read_fields(self, cls: Any, value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise _DamageError(f"expected an object, got {type(value).__name__}")
        hints, required = _fields(cls)
        _check_names(value, hints.keys(), required)
        values = {}
        for name, item in value.items():
            try:
                values[name] = self.read(hints[name], item)
            except _DamageError as damage:
                raise damage.within(name) from None
        return cls(**values)

    def read_table(self, document: Mapping[str, Any], cls: Any, key: str, names: str) -> list[Any]:
        with _within(names):
            fields = self.read(tuple[str, ...], document.get(names))
        rows = []
        with _within(key):
            for index, row in enumerate(self.read(tuple[object, ...], document.get(key))):
                with _within(index):
                    self.read_list((object,) * len(fields), row)
                    rows.append(self.read_fields(cls, dict(zip(fields, row, strict=True))))
        return rows


@contextlib.contextmanager
def _within(part: str | int) -> Iterator[None]:
    try:
        yield
    except _DamageError as damage:
        raise damage.within(part) from None


def _check_names(value: Mapping[str, Any], known: Set[str], required: Set[str]) -> None:
    for name in [*value.keys() - known, *required - value.keys()]:
        what = "is missing" if name in required else "is a field that this version does not have"
        raise _DamageError(what).within(name)


@functools.cache
def _fields(cls: Any) -> tuple[dict[str, Any], set[str]]:
    """The types of a dataclass's fields, and the names of those without a default."""
    required = {field.name for field in dataclasses.fields(cls) if field.default is dataclasses.MISSING}
    return typing.get_type_hints(cls), required


def _scalar(hint: type, value: Any) -> Any:
    value = _from_json(value)
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        raise _DamageError(f"expected {hint.__name__}, got {type(value).__name__}")
    return value


def _from_json(value: Any) -> Any:
    if isinstance(value, list):
        return [_from_json(item) for item in value]
    if isinstance(value, Mapping):
        if set(value) == {"float"} and value["float"] in ("inf", "-inf", "nan"):
            return float(value["float"])
        return {key: _from_json(item) for key, item in value.items()}
    return value


def _trace_1(document: Mapping[str, Any]) -> Trace:
    reader = _Reader()
    tables = {
        TensorMeta: reader.read_table(document, TensorMeta, "tensors", "tensor_fields"),
        Source: reader.read_table(document, Source, "sources", "source_fields"),
    }
    body = {key: value for key, value in document.items() if key not in _TRACE_KEYS}
    trace: Trace = _Reader(tables).read_fields(Trace, body)
    return trace


def _report_1(document: Mapping[str, Any]) -> Report:
    reader = _Reader()
    _check_names(document, _REPORT_KEYS, _REPORT_KEYS - _DERIVED_KEYS)
    if not isinstance(document["trace"], Mapping):
        raise _DamageError("expected an object").within("trace")
    lines, findings = document["sources"], []
    for index, row in enumerate(reader.read(tuple[object, ...], document["findings"])):
        with _within("findings"), _within(index):
            label = row.get("source") if isinstance(row, Mapping) else None
            if label is not None:
                if not isinstance(lines, Mapping) or label not in lines:
                    raise _DamageError(f"source {label!r} is not in sources")
                row = {**row, "source": lines[label]}  # noqa: PLW2901
            findings.append(reader.read_fields(Finding, row))
    return Report(load_trace(document["trace"]), findings)


_LOADERS: dict[tuple[str, int], Callable[[Mapping[str, Any]], Any]] = {
    (TRACE_FORMAT, 1): _trace_1,
    (REPORT_FORMAT, 1): _report_1,
}


def _load(source: Mapping[str, Any] | str | Path, expected: str) -> Any:
    document, where = _open(source)
    found, version = document.get("format"), document.get("version")
    if found != expected:
        raise SchemaError(f"{where} has the format {found!r}, not {expected!r}; give a file that nhwc saved as one")
    if type(version) is not int or version < 1:
        raise SchemaError(f"{where} is damaged (version: expected a number from 1, got {version!r}); record it again")
    if version > VERSION:
        raise SchemaError(f"{where} has version {version} and this nhwc reads up to {VERSION}; update nhwc to read it")
    try:
        return _LOADERS[expected, version](document)
    except _DamageError as damage:
        raise SchemaError(f"{where} is damaged ({damage}); record it again") from None
    except (TypeError, AttributeError, KeyError) as error:  # a value of another type than its place asks for
        raise SchemaError(f"{where} is damaged ({error}); record it again") from error


def _open(source: Mapping[str, Any] | str | Path) -> tuple[Mapping[str, Any], str]:
    if isinstance(source, Mapping):
        return source, "the document"
    where = "the text"
    try:
        if isinstance(source, Path) or not source.lstrip().startswith("{"):
            where = f"the file {str(source)[:200]!r}"
            source = Path(source).read_text(encoding="utf-8")
        document = json.loads(source)
    except OSError as error:
        raise SchemaError(
            f"{where} cannot be read ({error.strerror}); give a path to a file that nhwc saved"
        ) from error
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"{where} is not JSON ({error}); give a file that nhwc saved") from error
    if not isinstance(document, dict):
        raise SchemaError(f"{where} holds a JSON {type(document).__name__}, not an object; give a file that nhwc saved")
    return document, where
