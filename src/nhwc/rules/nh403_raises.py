"""The step raises in channels last: a view whose strides no longer fit, or an operator without a channels-last path."""

from __future__ import annotations

from collections.abc import Iterator

from nhwc.model import Severity
from nhwc.rules.flow import Flow, caller_name
from nhwc.rules.registry import Draft, rule
from nhwc.rules.wording import draft_of


@rule("NH403", kind="numerics", severity=Severity.ERROR)
def find(flow: Flow) -> Iterator[Draft]:
    """The step raises in channels last."""
    error = flow.trace.error
    if error is None:
        return
    call = flow.trace.calls[error.call] if error.call is not None else None
    if call is None:
        yield Draft(
            None,
            error.type,
            "",
            None,
            "forward",
            (),
            0,
            f"the step raises {error.type}: {error.message}",
            "run it in contiguous",
        )
        return
    name = caller_name(call) if "::" in call.caller else call.name
    nbytes = call.inputs[0].nbytes if call.inputs else 0
    if call.name in ("view", "_unsafe_view"):
        advice = f"use reshape or flatten instead of view; it costs one copy of {nbytes} bytes in channels last"
    else:
        advice = "convert to contiguous around this operator: x.contiguous() before it, nhwc.to_format after it"
    yield draft_of(
        call,
        name,
        0,
        f"{name} raises for a channels-last input: {error.message}",
        advice,
    )
