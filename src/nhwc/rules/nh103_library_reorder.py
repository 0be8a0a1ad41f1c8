"""A library reorders an activation: oneDNN rewrites an input or an output of a convolution to its own format."""

from __future__ import annotations

from collections.abc import Iterator

from nhwc.model import Severity
from nhwc.rules.flow import Flow, caller_name
from nhwc.rules.nh204_slow_convolution import runs_contiguous
from nhwc.rules.registry import Draft, rule
from nhwc.rules.wording import draft_of, operand_origin


@rule("NH103", kind="copy", severity=Severity.WARNING)
def find(flow: Flow) -> Iterator[Draft]:
    """A library reorders an activation."""
    for call in flow.trace.calls:
        reorders = [r for r in call.reorders if r.operand in ("src", "dst") and r.source_format != r.target_format]
        if not reorders or runs_contiguous(call):
            continue
        name = caller_name(call)
        reason = (
            operand_origin(flow, call) if flow.origin(call) is not None else "an operand in a format it does not read"
        )
        yield draft_of(
            call,
            name,
            sum(r.nbytes for r in reorders),
            f"{reorders[0].library} reorders {len(reorders)} activations inside {name} because of {reason}",
            "give it channels-last operands and weights; else the library prefers a blocked format of its own",
            cause=flow.cause(call),
        )
