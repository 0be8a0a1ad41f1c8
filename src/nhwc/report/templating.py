"""Templates and style sheets of the pages; every string goes through jinja2's escaping."""

from __future__ import annotations

import functools
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup


def fill(template: str, view: dict[str, Any], **values: object) -> str:
    """A template filled with a view, in which no name may be missing."""
    return _environment().get_template(template).render(**view, **values)


def ours(*names: str) -> Markup:
    """Our own style sheets and scripts, one after the other, as they are."""
    return Markup("".join(text(name) for name in names))  # noqa: S704 our own files


@functools.cache
def text(name: str) -> str:
    """A file among the templates."""
    return (files("nhwc.report") / "templates" / name).read_text(encoding="utf-8")


@functools.cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FunctionLoader(text),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
