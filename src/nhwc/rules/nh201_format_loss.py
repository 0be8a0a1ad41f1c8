"""An operator reads channels last and writes contiguous: every operator after it works in the other format."""

from __future__ import annotations

from collections.abc import Iterator

from nhwc.model import Severity
from nhwc.rules.advice import advice_for
from nhwc.rules.flow import CONVOLUTIONS, Event, Flow, caller_name
from nhwc.rules.registry import Draft, rule
from nhwc.rules.wording import draft_of


@rule("NH201", kind="loss", severity=Severity.WARNING)
def find(flow: Flow) -> Iterator[Draft]:
    """An operator writes its output in contiguous."""
    for index, event in flow.events.items():
        call = flow.trace.calls[index]
        if event is not Event.LOSS or flow.copies_of(call, weights=False):
            continue
        name = caller_name(call)
        if call.name in CONVOLUTIONS:
            message = f"{name} is given channels last and answers in contiguous: torch picked a backend that writes it"
        else:
            message = f"{name} reads channels last and writes contiguous"
        yield draft_of(
            call,
            name,
            sum(meta.nbytes for meta in call.outputs if len(meta.shape) >= 4),
            message,
            advice_for(call),
            cause=flow.cause(call),
        )
