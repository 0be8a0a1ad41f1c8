"""Versioned JSON for verifications: every result with its errors, and what is at fault.

A file opens with its format and version: ``{"format": "nhwc-verification", "version": 1, ...}``.

Change history
    1  first version.

A new optional field of nhwc.proof loads from older files as its default and needs no new version. Anything else (a
field renamed, removed, or with another meaning) needs one: raise VERIFICATION_VERSION, add a line above, and add a
loader that turns the old document into the new one. docs/verify.md describes every field.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nhwc.proof import Verification
from nhwc.schema.document import load_document
from nhwc.schema.typed import Reader, plain

VERIFICATION_VERSION = 1
VERIFICATION_FORMAT = "nhwc-verification"

_DERIVED_KEYS = {"headline", "passed"}

Document = dict[str, Any]


def dump_verification(verification: Verification) -> Document:
    """A verification as JSON-able data; ``passed`` is written for readers that look no further.

    >>> verification = Verification("net", False, 8.0, (), "cpu", "2.14", 1.0)
    >>> document = dump_verification(verification)
    >>> document["passed"], load_verification(document) == verification
    (True, True)
    """
    opening = {"format": VERIFICATION_FORMAT, "version": VERIFICATION_VERSION, "passed": verification.passed}
    return {**opening, **plain(verification)}


def load_verification(source: Mapping[str, Any] | str | Path) -> Verification:
    """The verification in a document, in its JSON text, or in the file at a path (a str that opens with "{" is text).

    Raises SchemaError where it is not a verification of ours, is damaged, or comes from a newer nhwc.
    """
    found: Verification = load_document(
        source, VERIFICATION_FORMAT, {1: _verification_1}, remedy="verify the model again"
    )
    return found


def _verification_1(document: Mapping[str, Any]) -> Verification:
    body = {key: value for key, value in document.items() if key not in {"format", "version", *_DERIVED_KEYS}}
    found: Verification = Reader().read_fields(Verification, body)
    return found
