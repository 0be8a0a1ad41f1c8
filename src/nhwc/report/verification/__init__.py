"""Reports of verifications: a terminal page and versioned JSON.

A new format is one file here that registers its function for the kind "verification", and a line below.
"""

from nhwc.report.verification import to_json, to_terminal
from nhwc.report.verification.summary import headline

__all__ = ["headline", "to_json", "to_terminal"]
