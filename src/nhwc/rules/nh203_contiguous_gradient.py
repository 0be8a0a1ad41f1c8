"""A gradient arrives in contiguous format at an activation that is channels last: the backward pass runs off format."""

from __future__ import annotations

from collections.abc import Iterator

from nhwc.model import Severity
from nhwc.rules.flow import Event, Flow, caller_name
from nhwc.rules.registry import Draft, rule
from nhwc.rules.wording import draft_of


@rule("NH203", kind="loss", severity=Severity.WARNING)
def find(flow: Flow) -> Iterator[Draft]:
    """A gradient in contiguous reaches a channels-last activation."""
    for index, event in flow.events.items():
        call = flow.trace.calls[index]
        if event is not Event.GRADIENT or flow.copies_of(call, weights=False):
            continue
        forward = flow.trace.calls[call.forward] if call.forward is not None else None
        of = caller_name(forward) if forward is not None else "an operator"
        yield draft_of(
            call,
            caller_name(call) if "::" in call.caller else call.name,
            sum(meta.nbytes for meta in call.outputs if len(meta.shape) >= 4),
            f"the backward of {of} ({call.name}) writes the gradient of a channels-last activation in contiguous",
            "torch has no option for it; a tensor hook that restores channels last there confines the cost to one copy",
        )
