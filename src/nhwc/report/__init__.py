"""Reports of what was found in a trace: a terminal table, versioned JSON, one self-contained HTML page.

Measurements have reports of their own, in ``bench`` and ``suite``, verifications in ``verification``, operator
tables in ``ops``, engines in ``engine``, plans in ``plan``, optimizations in ``optimization``.

A new format is one file here that registers its function, and a line below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nhwc.report import bench, engine, ops, optimization, plan, suite, to_html, to_json, to_terminal, verification
from nhwc.report.registry import formats, renderer

if TYPE_CHECKING:
    from nhwc.model import Report

__all__ = [
    "bench",
    "engine",
    "formats",
    "ops",
    "optimization",
    "plan",
    "render",
    "suite",
    "to_html",
    "to_json",
    "to_terminal",
    "verification",
]


def render(report: Report, format: str = "text", **options: Any) -> str:  # noqa: A002 the public word for it
    """A report as text in one of ``formats()``: "html", "json" or "text".

    Options are the format's own, such as ``width=100`` for text. Raises RegistryError for an unknown format.

    >>> from nhwc.model import Environment, Report, Trace
    >>> trace = Trace("net", "eager", False, Environment("2.14", "3.11", "cpu", "x86", 2, "0.1"), ())
    >>> render(Report(trace), "json")[:40]
    '{"format": "nhwc-report", "version": 1, '
    """
    return renderer(format)(report, **options)
