"""A copy between formats hidden inside an operator: the user called one operator, its kernel copies first."""

from __future__ import annotations

from collections.abc import Iterator

from nhwc.model import Call, Phase, Severity
from nhwc.rules.advice import advice_for
from nhwc.rules.flow import CONVOLUTIONS, Event, Flow, caller_name, copy_ends, is_hidden
from nhwc.rules.order import Order, order_of
from nhwc.rules.registry import Draft, rule
from nhwc.rules.wording import draft_of, operand_origin


@rule("NH102", kind="copy", severity=Severity.WARNING)
def find(flow: Flow) -> Iterator[Draft]:
    """A copy hidden inside an operator."""
    for call in flow.trace.calls:
        if call.phase is Phase.OPTIMIZER:
            continue
        if flow.events.get(call.index) is Event.COPY and is_hidden(call):
            yield _called_by_composite(flow, call)
        elif flow.events.get(call.index) is not Event.STRIDES:
            copies = flow.copies_of(call, weights=False)
            if copies:
                copies += flow.copies_of(call, weights=True)
                yield _inside_kernel(flow, call, sum(copy.target.nbytes for copy in copies), len(copies))


def _called_by_composite(flow: Flow, call: Call) -> Draft:
    _, target = copy_ends(call)
    to = order_of(target).value if target is not None else "another format"
    name = caller_name(call)
    return draft_of(
        call,
        name,
        target.nbytes if target is not None else 0,
        f"{name} copies its input to {to} inside",
        advice_for(call),
        cause=flow.cause(call)
        if target is not None and order_of(target) is Order.PIXELS
        else flow.forward_culprit(call),
    )


def _inside_kernel(flow: Flow, call: Call, nbytes: int, count: int) -> Draft:
    name = caller_name(call)
    loses = call.index in flow.events
    cause = flow.cause(call)
    if loses and cause is None:
        message = f"{name}'s kernel copies its channels-last operand to contiguous and answers in contiguous"
        advice = advice_for(call)
    elif call.name in CONVOLUTIONS or flow.origin(call) is not None:
        message = f"{name} copies {operand_origin(flow, call)}, inside its kernel" + (
            f" ({count} copies)" if count > 1 else ""
        )
        advice = (
            "keep its operands in channels last: see the culprit"
            if cause is not None
            else "convert that tensor once, where it is made"
        )
    else:
        message = f"{name}'s kernel copies its channels-last operand to contiguous"
        advice = advice_for(call)
    return draft_of(call, name, nbytes, message, advice, cause=cause)
