"""A convolution copies its weight at every call: it is contiguous or permuted while the input is channels last."""

from __future__ import annotations

from collections.abc import Iterator

from nhwc.model import Call, InnerCopy, Severity
from nhwc.rules.flow import CONVOLUTIONS, Flow, caller_name
from nhwc.rules.order import Order, order_of
from nhwc.rules.registry import Draft, rule
from nhwc.rules.wording import draft_of, shape_text


def copied_weights(flow: Flow, call: Call) -> list[InnerCopy]:
    """Copies of a convolution's weight itself inside its kernel (those of its gradient aside)."""
    return [copy for copy in flow.copies_of(call, weights=True) if copy.source.storage >= 0]


@rule("NH105", kind="copy", severity=Severity.WARNING)
def find(flow: Flow) -> Iterator[Draft]:
    """A weight is copied at every call."""
    for call in flow.trace.calls:
        if call.name not in CONVOLUTIONS:
            continue
        copies = copied_weights(flow, call)
        if not copies or flow.copies_of(call, weights=False):  # then NH102 tells of both
            continue
        name = caller_name(call)
        weight = copies[0].source
        called = f"its weight {weight.name}" if weight.name else "its weight"
        if order_of(weight) is Order.PIXELS:
            problem = "to contiguous, since this convolution's backend reads contiguous only"
            advice = "larger inputs, a batch above 1 or float32 make torch pick the backend that reads channels last"
        elif order_of(weight) is Order.PLANES:
            problem = "to channels last: it is contiguous while the input is channels last"
            advice = "convert the model as well as the inputs: nhwc.convert(model)"
        else:
            problem = f"to channels last: it is a permuted view with strides {weight.strides}"
            advice = "store the weight as (out, in, kh, kw) once and convert it, instead of permuting it at every call"
        yield draft_of(
            call,
            name,
            sum(copy.target.nbytes for copy in copies),
            f"{name} copies {called} ({shape_text(weight)}) at every call {problem}",
            advice,
            cause=call.index if call.index in flow.events else flow.cause(call),
        )
