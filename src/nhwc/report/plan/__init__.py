"""Plans: a terminal page with a table of modules and moves, versioned JSON, and what differs between two.

A new format is one file here that registers its function for the kind "plan", and a line below.
"""

from nhwc.report.plan import to_json, to_terminal
from nhwc.report.plan.differences import differences
from nhwc.report.plan.summary import headline

__all__ = ["differences", "headline", "to_json", "to_terminal"]
