"""An operator keeps channels last but is slower in it than in contiguous: a measurement decides whether it is told."""

from __future__ import annotations

from collections.abc import Iterator

from nhwc.model import Phase, Severity
from nhwc.rules.flow import Flow, caller_name
from nhwc.rules.order import Order, order_of
from nhwc.rules.registry import Draft, rule
from nhwc.rules.wording import draft_of

#: Operators that keep the format and were measured slower in it, by device type, each with nhwc's kernel for it.
#: group_norm: twice the contiguous time on the CPU; softmax over channels: 1.6 times (torch 2.14).
SLOW = {
    "cpu": {
        "native_group_norm": "group_norm",
        "native_group_norm_backward": "group_norm",
        "_softmax": "softmax",
        "_log_softmax": "softmax",
    }
}


@rule("NH205", kind="slow", severity=Severity.WARNING, needs_time=True)
def find(flow: Flow) -> Iterator[Draft]:
    """An operator that keeps channels last but is slow in it."""
    for call in flow.trace.calls:
        if call.phase is Phase.OPTIMIZER or not call.inputs or not call.outputs:
            continue
        slow = SLOW.get(call.inputs[0].device.partition(":")[0], {})
        if (
            call.name not in slow
            or slow[call.name] in flow.trace.kernels  # our own ran in its stead
            or order_of(call.inputs[0]) is not Order.PIXELS
            or order_of(call.outputs[0]) is not Order.PIXELS
        ):
            continue
        name = caller_name(call)
        yield draft_of(
            call,
            name,
            0,
            f"{name} keeps channels last but its kernel is slower in it than in contiguous",
            "keep it: converting around it costs more unless the measurement says otherwise",
        )
