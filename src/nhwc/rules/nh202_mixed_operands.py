"""Operands of mixed format: one contiguous operand drags the result of cat or of a pointwise operator to contiguous."""

from __future__ import annotations

from collections.abc import Iterator

from nhwc.model import Severity
from nhwc.rules.flow import Event, Flow, caller_name
from nhwc.rules.registry import Draft, rule
from nhwc.rules.wording import draft_of, operand_origin


@rule("NH202", kind="loss", severity=Severity.WARNING)
def find(flow: Flow) -> Iterator[Draft]:
    """Operands of mixed format."""
    for index, event in flow.events.items():
        call = flow.trace.calls[index]
        if event is not Event.MIXED or flow.copies_of(call, weights=False):
            continue
        name = caller_name(call)
        origin = operand_origin(flow, call)
        if name == "cat":
            advice = "make that operand channels last where it is created: .to(memory_format=torch.channels_last)"
        else:
            advice = "put the channels-last operand first, or make the other one channels last where it is created"
        yield draft_of(
            call,
            name,
            sum(meta.nbytes for meta in call.outputs if len(meta.shape) >= 4),
            f"{name} mixes channels-last operands with {origin}, and answers in contiguous",
            advice,
            cause=flow.cause(call),
        )
