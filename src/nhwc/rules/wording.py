"""Phrases that the rules share: shapes, tensors and places as a reader says them."""

from __future__ import annotations

from nhwc.model import Call, Severity, TensorMeta
from nhwc.rules.flow import Flow, caller_name
from nhwc.rules.registry import Draft


def shape_text(meta: TensorMeta) -> str:
    """ "8x64x112x112"."""
    return "x".join(map(str, meta.shape))


def place_text(call: Call) -> str:
    """Where a call stands: its module path and source line, as far as they are known."""
    module = f" in {call.module}" if call.module else ""
    source = f" ({call.source})" if call.source is not None else ""
    return f"{caller_name(call)}{module}{source}"


def operand_origin(flow: Flow, call: Call) -> str:
    """Who made the operand of ``call`` that lies in contiguous format."""
    origin = flow.origin(call)
    if origin is None:
        return "a contiguous operand"
    if origin.call is not None:
        return f"the contiguous result of {place_text(flow.trace.calls[origin.call])}"
    return f"{origin.name}, which is contiguous" if origin.name else "a contiguous tensor made outside the step"


def draft_of(
    call: Call,
    operator: str,
    nbytes: int,
    message: str,
    advice: str,
    *,
    cause: int | None = None,
    severity: Severity | None = None,
) -> Draft:
    """What a rule says of one call, which gives its place, its phase and its images."""
    return Draft(
        call.index,
        operator,
        call.module,
        call.source,
        call.phase.value,
        images(call),
        nbytes,
        message,
        advice,
        cause=cause,
        severity=severity,
    )


def images(call: Call) -> tuple[TensorMeta, ...]:
    """Operands and results of rank 3 and more, operands first."""
    return tuple(meta for meta in (*call.inputs, *call.outputs) if len(meta.shape) >= 3)


def names_text(names: list[str]) -> str:
    """The first three names and how many more there are."""
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
