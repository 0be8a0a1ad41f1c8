"""Frozen dataclasses as JSON-able data, and back by the types that they declare."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Set
from enum import Enum
from typing import Any


def plain(value: object) -> Any:
    """A value as JSON-able data: dataclasses become objects; JSON has no tuples, enums, infinity or nan."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    return value


class DamageError(Exception):
    """What is wrong, and the path to it, built up on the way out."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.path: list[str | int] = []

    def within(self, part: str | int) -> DamageError:
        self.path.insert(0, part)
        return self

    def __str__(self) -> str:
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.path).lstrip(".")
        return f"{place}: {self.what}" if place else self.what


class Reader:
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
                raise DamageError(f"expected a row number below {len(rows)}, got {value!r}")
            return rows[value]
        if dataclasses.is_dataclass(hint):
            return self.read_fields(hint, value)
        if issubclass(hint, Enum):
            known = [item.value for item in hint]
            if value not in known:
                raise DamageError(f"expected one of {', '.join(known)}, got {value!r}")
            return hint(value)
        return _scalar(hint, value)

    def read_list(self, hints: Iterable[Any], value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list) or (isinstance(hints, tuple) and len(value) != len(hints)):
            expected = f"a list of {len(hints)}" if isinstance(hints, tuple) else "a list"
            raise DamageError(f"expected {expected}, got {str(value)[:60]!r}")
        items: list[Any] = []
        try:
            for hint, item in zip(hints, value, strict=False):
                items.append(item if type(item) is hint is int else self.read(hint, item))
        except DamageError as damage:
            raise damage.within(len(items)) from None
        return tuple(items)

    def read_fields(self, cls: Any, value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise DamageError(f"expected an object, got {type(value).__name__}")
        hints, required = _fields(cls)
        check_names(value, hints.keys(), required)
        values = {}
        for name, item in value.items():
            try:
                values[name] = self.read(hints[name], item)
            except DamageError as damage:
                raise damage.within(name) from None
        return cls(**values)

    def read_table(self, document: Mapping[str, Any], cls: Any, key: str, names: str) -> list[Any]:
        with within_part(names):
            fields = self.read(tuple[str, ...], document.get(names))
        rows = []
        with within_part(key):
            for index, row in enumerate(self.read(tuple[object, ...], document.get(key))):
                with within_part(index):
                    self.read_list((object,) * len(fields), row)
                    rows.append(self.read_fields(cls, dict(zip(fields, row, strict=True))))
        return rows


@contextlib.contextmanager
def within_part(part: str | int) -> Iterator[None]:
    """Damage found in the block lies at ``part`` of what is read."""
    try:
        yield
    except DamageError as damage:
        raise damage.within(part) from None


def check_names(value: Mapping[str, Any], known: Set[str], required: Set[str]) -> None:
    """Raise DamageError for a field that is not known, or one that is missing."""
    for name in [*value.keys() - known, *required - value.keys()]:
        what = "is missing" if name in required else "is a field that this version does not have"
        raise DamageError(what).within(name)


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
        raise DamageError(f"expected {hint.__name__}, got {type(value).__name__}")
    return value


def _from_json(value: Any) -> Any:
    if isinstance(value, list):
        return [_from_json(item) for item in value]
    if isinstance(value, Mapping):
        if set(value) == {"float"} and value["float"] in ("inf", "-inf", "nan"):
            return float(value["float"])
        return {key: _from_json(item) for key, item in value.items()}
    return value
