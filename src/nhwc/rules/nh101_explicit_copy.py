"""An explicit copy between formats: clone, contiguous, to, reshape or flatten that rewrites the whole tensor."""

from __future__ import annotations

from collections.abc import Iterator

from nhwc.model import Severity
from nhwc.rules.advice import advice_for
from nhwc.rules.flow import Event, Flow, caller_name, copy_ends, is_hidden
from nhwc.rules.order import Order, order_of
from nhwc.rules.registry import Draft, rule
from nhwc.rules.wording import images, operand_origin


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
        if restores:
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
        yield Draft(
            index,
            name,
            call.module,
            call.source,
            call.phase.value,
            images(call),
            target.nbytes,
            message,
            advice,
            cause=flow.cause(call) if restores else None,
        )
