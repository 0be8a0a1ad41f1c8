"""Versioned JSON for plans: the format of every module, the moves between them, and what they hold for.

A file opens with its format and version: ``{"format": "nhwc-plan", "version": 1, ...}``.

Change history
    1  first version.

A new optional field of nhwc.plan loads from older files as its default and needs no new version. Anything else (a field
renamed, removed, or with another meaning) needs one: raise PLAN_VERSION, add a line above, and add a loader that turns
the old document into the new one.

A file may be edited by hand: a placement's ``format``, and moves. What it says of times is then no longer measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nhwc.plan import AFTER, BEFORE, FORMATS, Plan
from nhwc.schema.document import load_document
from nhwc.schema.typed import DamageError, Reader, plain, within_part

PLAN_VERSION = 1
PLAN_FORMAT = "nhwc-plan"

Document = dict[str, Any]


def dump_plan(plan: Plan) -> Document:
    """A plan as JSON-able data.

    >>> from nhwc.model import Environment
    >>> from nhwc.plan import Predicted
    >>> where = Environment("2.14", "3.11", "cpu", "x86", 2, "0.1")
    >>> plan = Plan("net", where, False, "", (), (), "0", (), (), (), Predicted(2.0, 1.0, 1.0))
    >>> load_plan(dump_plan(plan)) == plan
    True
    """
    return {"format": PLAN_FORMAT, "version": PLAN_VERSION, **plain(plan)}


def load_plan(source: Mapping[str, Any] | str | Path) -> Plan:
    """The plan in a document, in its JSON text, or in the file at a path (a str that opens with "{" is text).

    Raises SchemaError where it is no plan of ours, is damaged, or comes from a newer nhwc.
    """
    found: Plan = load_document(source, PLAN_FORMAT, {1: _plan_1}, remedy="make the plan again")
    return found


def _plan_1(document: Mapping[str, Any]) -> Plan:
    body = {key: value for key, value in document.items() if key not in {"format", "version"}}
    plan: Plan = Reader().read_fields(Plan, body)
    modules: set[str] = set()
    for place, placement in enumerate(plan.placements):
        with within_part("placements"), within_part(place):
            _check("format", placement.format, FORMATS)
            if placement.module in modules:
                raise DamageError(f"{placement.module!r} is placed twice").within("module")
            modules.add(placement.module)
    for place, move in enumerate(plan.moves):
        with within_part("moves"), within_part(place):
            _check("format", move.format, FORMATS)
            _check("where", move.where, (BEFORE, AFTER))
    return plan


def _check(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise DamageError(f"expected one of {', '.join(known)}, got {value!r}").within(name)
