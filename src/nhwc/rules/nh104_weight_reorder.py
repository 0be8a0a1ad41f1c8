"""Weights are rewritten to the library's own format at every call: normal for eager mode, one note per model."""

from __future__ import annotations

from collections.abc import Iterator

from nhwc.model import Severity
from nhwc.rules.flow import Flow
from nhwc.rules.registry import Draft, rule


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


@rule("NH104", kind="slow", severity=Severity.NOTE)
def find(flow: Flow) -> Iterator[Draft]:
    """A library reorders weights at every call."""
    reorders = [r for call in flow.trace.calls for r in call.reorders if r.operand == "weights"]
    gradients = [
        copy
        for call in flow.trace.calls
        if call.name == "convolution_backward"
        for copy in flow.copies_of(call, weights=True)
        if copy.source.storage < 0
    ]
    if not reorders and not gradients:
        return
    parts = []
    if reorders:
        parts.append(
            f"{reorders[0].library} packs weights anew in every step ({len(reorders)} reorders): eager mode keeps none"
        )
    if gradients:
        parts.append(
            f"{_count(len(gradients), 'weight gradient')} copied to channels last inside a convolution's backward"
        )
    times = [ms for ms in (*(r.ms for r in reorders), *(copy.ms for copy in gradients)) if ms is not None]
    nbytes = sum(r.nbytes for r in reorders) + sum(copy.target.nbytes for copy in gradients)
    yield Draft(
        None,
        "convolution",
        "",
        None,
        "forward",
        (),
        nbytes,
        "; ".join(parts),
        "nothing to do in eager mode; for inference torch.compile with freezing keeps weights packed",
        calls=len(reorders) + len(gradients),
        ms=sum(times) if times else None,
    )
