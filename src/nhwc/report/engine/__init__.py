"""Reports of engines: a terminal page with a table of steps, and versioned JSON.

A new format is one file here that registers its function for the kind "engine", and a line below.
"""

from nhwc.report.engine import to_json, to_terminal
from nhwc.report.engine.summary import headline

__all__ = ["headline", "to_json", "to_terminal"]
