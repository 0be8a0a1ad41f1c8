"""Versioned JSON for surveys of operators: every row, and the conditions that it was taken under.

A file opens with its format and version: ``{"format": "nhwc-ops", "version": 1, ...}``.

Change history
    1  first version.

A new optional field of nhwc.operators loads from older files as its default and needs no new version. Anything else (a
field renamed, removed, or with another meaning) needs one: raise OPS_VERSION, add a line above, and add a loader that
turns the old document into the new one. docs/ops.md describes every field.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nhwc.operators import OperatorRow, Survey
from nhwc.schema.document import load_document
from nhwc.schema.typed import DamageError, Reader, plain, within_part

OPS_VERSION = 1
OPS_FORMAT = "nhwc-ops"

_DERIVED_KEYS = {"headline"}

Document = dict[str, Any]


def dump_ops(survey: Survey) -> Document:
    """A survey as JSON-able data.

    >>> from nhwc.timing import Conditions
    >>> conditions = Conditions("cpu", "x86", 2.0, 2, "Linux", "glibc malloc", (("torch", "2.14"),))
    >>> survey = Survey(conditions, (), (), ("float32",), ("eager",), "", (), 1.0, "2026-01-01T00:00:00+00:00")
    >>> load_ops(dump_ops(survey)) == survey
    True
    """
    return {"format": OPS_FORMAT, "version": OPS_VERSION, **plain(survey)}


def load_ops(source: Mapping[str, Any] | str | Path) -> Survey:
    """The survey in a document, in its JSON text, or in the file at a path (a str that opens with "{" is text).

    Raises SchemaError where it is not a survey of ours, is damaged, or comes from a newer nhwc.
    """
    survey: Survey = load_document(source, OPS_FORMAT, {1: _ops_1}, remedy="survey the operators again")
    return survey


def read_row(value: Mapping[str, Any]) -> OperatorRow:
    """One row from JSON-able data. Raises SchemaError's cause, DamageError, where it is none."""
    row: OperatorRow = Reader().read_fields(OperatorRow, value)
    return row


def _ops_1(document: Mapping[str, Any]) -> Survey:
    body = {key: value for key, value in document.items() if key not in {"format", "version", *_DERIVED_KEYS}}
    survey: Survey = Reader().read_fields(Survey, body)
    if survey.whole is not None and (survey.whole.rows < len(survey.rows) or not survey.whole.sentences):
        with within_part("whole"):
            raise DamageError("it says less than the rows that are here")
    with within_part("rows"):
        seen = set()
        for place, row in enumerate(survey.rows):
            with within_part(place):
                _check(row)
                if row.key in seen:
                    raise DamageError("there is a row of the same operator before it")
                seen.add(row.key)
    return survey


def _check(row: OperatorRow) -> None:
    if row.dims not in (2, 3):
        raise DamageError(f"expected 2 or 3, got {row.dims}").within("dims")
    for name, each in row.passes:
        if min(each.kept, each.lost, each.viewed, each.refused, each.copied_bytes, each.contiguous_copied_bytes) < 0:
            raise DamageError("a count is below 0").within(name)
    for _, speed in row.speeds:
        ratio = speed.ratio
        if not 0.0 <= ratio.low <= ratio.estimate <= ratio.high or not ratio.estimate > 0.0:
            raise DamageError(f"{ratio.estimate} does not lie within {ratio.low} to {ratio.high}").within("ratio")
