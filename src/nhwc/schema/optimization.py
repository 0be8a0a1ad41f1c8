"""Versioned JSON for optimizations: every candidate with its ratio, all samples, verification and plan.

A file opens with its format and version: ``{"format": "nhwc-optimization", "version": 1, ...}``.

Change history
    1  first version.

A new optional field of nhwc.optimization_report loads from older files as its default and needs no new version.
Anything else (a field renamed, removed, or with another meaning) needs one: raise OPTIMIZATION_VERSION, add a line
above, and add a loader that turns the old document into the new one. docs/optimize.md describes every field.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nhwc.optimization_report import Optimization
from nhwc.schema.document import load_document
from nhwc.schema.typed import DamageError, Reader, plain

OPTIMIZATION_VERSION = 1
OPTIMIZATION_FORMAT = "nhwc-optimization"

_DERIVED_KEYS = {"headline"}

Document = dict[str, Any]


def dump_optimization(optimization: Optimization) -> Document:
    """An optimization as JSON-able data."""
    return {"format": OPTIMIZATION_FORMAT, "version": OPTIMIZATION_VERSION, **plain(optimization)}


def load_optimization(source: Mapping[str, Any] | str | Path) -> Optimization:
    """The optimization in a document, in its JSON text, or in the file at a path (a str that opens with "{" is text).

    Raises SchemaError where it is none of ours, is damaged, or comes from a newer nhwc.
    """
    found: Optimization = load_document(
        source, OPTIMIZATION_FORMAT, {1: _optimization_1}, remedy="optimize the model again"
    )
    return found


def _optimization_1(document: Mapping[str, Any]) -> Optimization:
    body = {key: value for key, value in document.items() if key not in {"format", "version", *_DERIVED_KEYS}}
    found: Optimization = Reader().read_fields(Optimization, body)
    names = [each.name for each in found.candidates]
    for field, name in (("chosen", found.chosen), ("plain", found.plain)):
        if name and name not in names:
            raise DamageError(f"{name!r} is none of the candidates").within(field)
    for place, other in enumerate(found.others):
        if other.plain not in [each.name for each in other.candidates]:
            raise (
                DamageError(f"{other.plain!r} is none of the candidates").within("plain").within(place).within("others")
            )
    return found
