"""Documents of every format: opened from a mapping, a text or a file, checked for format and version, loaded."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nhwc.errors import SchemaError
from nhwc.schema.typed import DamageError

Loader = Callable[[Mapping[str, Any]], Any]


def load_document(
    source: Mapping[str, Any] | str | Path,
    expected: str,
    loaders: Mapping[int, Loader],
    *,
    remedy: str,
) -> Any:
    """What the loader of the document's version makes of it.

    source: a document, its JSON text (a str that opens with "{"), or the path of its file.
    loaders: version → what reads it. remedy: what to do about a damaged document ("record it again").
    Raises SchemaError where it is no document of that format, is damaged, or comes from a newer nhwc.
    """
    document, where = _open(source)
    found, version = document.get("format"), document.get("version")
    newest = max(loaders)
    if found != expected:
        raise SchemaError(f"{where} has the format {found!r}, not {expected!r}; give a file that nhwc saved as one")
    if type(version) is not int or version < 1:
        raise SchemaError(f"{where} is damaged (version: expected a number from 1, got {version!r}); {remedy}")
    if version > newest:
        raise SchemaError(f"{where} has version {version} and this nhwc reads up to {newest}; update nhwc to read it")
    try:
        return loaders[version](document)
    except DamageError as damage:
        raise SchemaError(f"{where} is damaged ({damage}); {remedy}") from None
    except (TypeError, AttributeError, KeyError) as error:  # a value of another type than its place asks for
        raise SchemaError(f"{where} is damaged ({error}); {remedy}") from error


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
