"""The verification as versioned JSON (nhwc.schema), with the headline in it for readers that look no further."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from nhwc.report.registry import report_format
from nhwc.report.verification.summary import headline
from nhwc.schema import dump_verification

if TYPE_CHECKING:
    from nhwc.proof import Verification


@report_format("json", "verification")
def render_json(verification: Verification, indent: int | None = None) -> str:
    """One JSON document in one line (or indented); ``nhwc.schema.load_verification`` reads it back."""
    document = dump_verification(verification)
    opening = {key: document.pop(key) for key in ("format", "version")}
    return json.dumps({**opening, "headline": headline(verification), **document}, indent=indent, allow_nan=False)
