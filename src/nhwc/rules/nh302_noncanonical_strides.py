"""Strides that pass is_contiguous but mislead a kernel: a batch of one made by x[0].unsqueeze(0)."""

from __future__ import annotations

from collections.abc import Iterator

from nhwc.model import Call, Severity
from nhwc.rules.flow import Event, Flow, caller_name
from nhwc.rules.order import Order, order_of
from nhwc.rules.registry import Draft, rule
from nhwc.rules.wording import draft_of, place_text
from nhwc.strides import strides_for


def _maker(flow: Flow, call: Call, storage: int, strides: tuple[int, ...]) -> Call | None:
    """The view that first gave the tensor these strides."""
    for earlier in flow.trace.calls[: call.index]:
        if any(meta.storage == storage and meta.strides == strides for meta in earlier.outputs):
            return earlier
    return None


@rule("NH302", kind="loss", severity=Severity.WARNING)
def find(flow: Flow) -> Iterator[Draft]:
    """Non-canonical strides mislead an operator."""
    for index, event in flow.events.items():
        if event is not Event.STRIDES:
            continue
        call = flow.trace.calls[index]
        operand = next(meta for meta in call.inputs if order_of(meta) is Order.PIXELS)
        maker = _maker(flow, call, operand.storage, operand.strides)
        made = f", made by {place_text(maker)}," if maker is not None else ""
        canonical = strides_for(operand.shape, "channels_last" if len(operand.shape) == 4 else "channels_last_3d")
        copies = flow.copies_of(call, weights=False)
        nbytes = sum(c.target.nbytes for c in copies) or sum(
            meta.nbytes for meta in call.outputs if len(meta.shape) >= 4
        )
        yield draft_of(
            call,
            caller_name(call),
            nbytes,
            f"{caller_name(call)} answers contiguous: its input{made} has strides {operand.strides}, not {canonical}",
            "slice with x[:1] instead of x[0].unsqueeze(0), or restride for free: nhwc.to_format(x, 'channels_last')",
        )
