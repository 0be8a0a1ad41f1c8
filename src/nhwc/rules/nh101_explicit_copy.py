"""An explicit copy between formats: clone, contiguous, to, reshape or flatten that rewrites the whole tensor."""

from __future__ import annotations

from collections.abc import Iterator

from nhwc.model import Call, Severity
from nhwc.rules.advice import advice_for
from nhwc.rules.flow import Event, Flow, caller_name, copy_ends, is_hidden
from nhwc.rules.order import Order, order_of
from nhwc.rules.registry import Draft, rule
from nhwc.rules.wording import draft_of, operand_origin


def _arriving(flow: Flow, call: Call) -> str:
    origin = flow.origin(call)
    return origin.name if origin is not None and origin.name else "a tensor made outside the step"


@rule("NH101", kind="copy", severity=Severity.WARNING)
def find(flow: Flow) -> Iterator[Draft]:
    """An explicit copy between formats."""
    for index, event in flow.events.items():
        call = flow.trace.calls[index]
        if event is not Event.COPY or is_hidden(call):
            continue
        source, target = copy_ends(call)
        if source is None or target is None:
            continue
        name = caller_name(call)
        restores = order_of(target) is Order.PIXELS
        origin = flow.origin(call)
        arrives = restores and origin is not None and origin.call is None and not flow.is_parameter(source)
        if arrives:
            message = f"{_arriving(flow, call)} arrives in contiguous and is converted to channels last"
            advice = (
                "the one copy that channels last needs; deliver it so from the data loader, where it costs no step time"
            )
        elif restores:
            message = f"{name} copies {operand_origin(flow, call)} back to channels last"
            advice = "deliver the tensor in channels last where it is made"
        elif index in flow.forced:
            message = f"{name} writes contiguous whatever it is given: it would lose the format here by itself"
            advice = advice_for(call)
        else:
            what = (
                "channels-last tensor" if order_of(source) is Order.PIXELS else "tensor whose channels lie side by side"
            )
            message = f"{name} copies a {what} to contiguous"
            advice = advice_for(call)
        yield draft_of(
            call,
            name,
            target.nbytes,
            message,
            advice,
            cause=flow.cause(call) if restores else flow.forward_culprit(call),
            severity=Severity.NOTE if arrives else None,
        )
