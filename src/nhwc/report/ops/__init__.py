"""Reports of surveys: a terminal table, one searchable HTML page, versioned JSON, and what changed between two.

A new format is one file here that registers its function for the kind "ops", and a line below.
"""

from nhwc.report.ops import changes, to_html, to_json, to_terminal
from nhwc.report.ops.rows import SORTS, check, chosen, matches
from nhwc.report.ops.summary import headline

__all__ = ["SORTS", "changes", "check", "chosen", "headline", "matches", "to_html", "to_json", "to_terminal"]
