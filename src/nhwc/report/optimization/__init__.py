"""Reports of optimizations: a terminal page with a table of candidates, and versioned JSON.

A new format is one file here that registers its function for the kind "optimization", and a line below.
"""

from nhwc.report.optimization import to_json, to_terminal
from nhwc.report.optimization.summary import headline

__all__ = ["headline", "to_json", "to_terminal"]
