"""The report as one HTML page that loads nothing, and as a fragment for notebooks that runs nothing.

Every string goes through jinja2's escaping, or through ``_embedded`` where it is data of a script; styles and the
script are ours alone, and the page's content security policy admits no other.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
from typing import TYPE_CHECKING

from markupsafe import Markup

from nhwc.report.registry import report_format
from nhwc.report.templating import fill, ours, text
from nhwc.report.view import calls_view, page_view

if TYPE_CHECKING:
    from nhwc.model import Report
    from nhwc.plan import Plan

_SCRIPT_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}
_fragments = itertools.count(1)


@report_format("html")
def render_html(report: Report, plan: Plan | None = None) -> str:
    """One self-contained page: strip of layers, culprits, notes, every operator call. plan: shown on the strip.

    >>> from nhwc.model import Environment, Report, Trace
    >>> trace = Trace("net", "eager", False, Environment("2.14", "3.11", "cpu", "x86", 2, "0.1"), ())
    >>> render_html(Report(trace))[:15]
    '<!doctype html>'
    """
    script = text("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return fill(
        "page.j2",
        page_view(report, plan),
        style=ours("parts.css", "page.css"),
        script=ours("page.js"),
        script_hash=f"sha256-{digest}",
        data=_embedded(calls_view(report)),
    )


def to_html_fragment(report: Report) -> str:
    """The report as a part of a page, for notebooks: styles of its own, no script, links that work.

    >>> from nhwc.model import Environment, Report, Trace
    >>> trace = Trace("net", "eager", False, Environment("2.14", "3.11", "cpu", "x86", 2, "0.1"), ())
    >>> "<script" in to_html_fragment(Report(trace))
    False
    """
    return fill(
        "fragment.j2",
        page_view(report),
        style=ours("parts.css"),
        prefix=f"nhwc-{next(_fragments)}-",
    )


def _embedded(data: object) -> Markup:
    """JSON that cannot end the script element it stands in."""
    written = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    return Markup(written.translate(_SCRIPT_ESCAPES))  # noqa: S704 no character of markup is left
