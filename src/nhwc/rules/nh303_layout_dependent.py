"""as_strided with strides written for contiguous memory: the numbers change with the format."""

from __future__ import annotations

from collections.abc import Iterator

from nhwc.model import Phase, Severity
from nhwc.rules.flow import Flow, caller_name
from nhwc.rules.order import Order, order_of
from nhwc.rules.registry import Draft, rule
from nhwc.rules.wording import draft_of
from nhwc.strides import strides_for


@rule("NH303", kind="numerics", severity=Severity.ERROR)
def find(flow: Flow) -> Iterator[Draft]:
    """as_strided reads memory by strides written for contiguous."""
    for call in flow.trace.calls:
        if call.name != "as_strided" or call.phase is not Phase.FORWARD or caller_name(call) != "as_strided":
            continue
        operand = call.inputs[0]
        asked = call.arguments[2] if len(call.arguments) > 2 else dict(call.keywords).get("stride")
        if order_of(operand) is not Order.PIXELS or not isinstance(asked, list):
            continue
        written_for = set(strides_for(operand.shape, "contiguous")) - set(operand.strides)
        if not written_for & {stride for stride in asked if isinstance(stride, int)}:
            continue
        yield draft_of(
            call,
            "as_strided",
            0,
            f"as_strided reads a tensor of strides {operand.strides} by {tuple(asked)}, written for contiguous",
            "take views with unfold, narrow or slicing, or derive the strides from x.stride()",
        )
