"""A convolution runs in contiguous format: the library reorders its input and output at every call."""

from __future__ import annotations

from collections.abc import Iterator

from nhwc.model import Call, Severity
from nhwc.rules.flow import CONVOLUTIONS, Flow, caller_name
from nhwc.rules.nh105_weight_copy import copied_weights
from nhwc.rules.order import Order, order_of
from nhwc.rules.registry import Draft, rule
from nhwc.rules.wording import images, operand_origin


def runs_contiguous(call: Call) -> bool:
    """Whether a convolution reads and writes its activations in contiguous format."""
    if call.name not in CONVOLUTIONS or not call.outputs or len(call.inputs) < 2:
        return False
    position = 1 if call.name == "convolution_backward" else 0
    return order_of(call.inputs[position]) is Order.PLANES and order_of(call.outputs[0]) is Order.PLANES


@rule("NH204", kind="loss", severity=Severity.WARNING)
def find(flow: Flow) -> Iterator[Draft]:
    """A convolution runs in contiguous."""
    for call in flow.trace.calls:
        if not runs_contiguous(call) or flow.copies_of(call, weights=False) or copied_weights(flow, call):
            continue
        name = caller_name(call)
        cause = flow.cause(call)
        reorders = [r for r in call.reorders if r.operand in ("src", "dst")]
        whole_model = not flow.expected
        message = f"{name} runs in contiguous format"
        if not whole_model:
            message += f" because it reads {operand_origin(flow, call)}"
        yield Draft(
            call.index,
            name,
            "" if whole_model else call.module,
            None if whole_model else call.source,
            call.phase.value,
            images(call),
            sum(r.nbytes for r in reorders),
            message,
            "convert the model and its inputs: nhwc.convert(model, inputs=True)"
            if cause is None
            else "see the culprit before it",
            cause=cause,
        )
