"""Reports of a suite: a table for the terminal, a page with one chart, the chart alone, and a summary as JSON."""

from __future__ import annotations

from nhwc.report.suite import to_html, to_json, to_terminal
from nhwc.report.suite.summary import headlines

__all__ = ["headlines", "to_html", "to_json", "to_terminal"]
