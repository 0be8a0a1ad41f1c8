"""What every readable report says besides its culprits: environment, conversion, doubts, and what it cannot see."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nhwc.report.formatting import bytes_text, ms_text, plural, shape_text, visible

if TYPE_CHECKING:
    from nhwc.model import Report, TensorMeta

_MODES = {
    "eager": "eager: every operator call as it ran",
    "static": "static: fake tensors, nothing was computed, no time was measured",
    "compiled": "compiled: the operator calls of the compiled graphs",
}


def facts(report: Report) -> list[tuple[str, str]]:
    """Label and text of each thing a reader needs in order to trust or repeat the report."""
    trace = report.trace
    environment, step = trace.environment, trace.step
    rows = [
        ("Target", trace.target + (" (training step)" if trace.training and "training" not in trace.target else "")),
        ("Inputs", "; ".join(_input_text(tensor) for tensor in trace.inputs)),
        ("Mode", _MODES.get(trace.mode, trace.mode)),
        ("Formats", trace.conversion or "nothing: the model and its inputs were taken as they are"),
        ("Kernels", _kernels_text(report)),
        ("Recorded", _recorded(report)),
        ("Step", "" if step is None else _step_text(step.median_ms, step.spread_ms, step.repeats)),
        ("Device", f"{environment.device}, {environment.processor}, {plural(environment.threads, 'thread')}"),
        ("Versions", f"nhwc {environment.nhwc}, torch {environment.torch}, Python {environment.python}"),
    ]
    return [(label, visible(text)) for label, text in rows if text]


def limits(report: Report) -> list[str]:
    """Sentences that say what this trace cannot see."""
    return [visible(text) for text in report.trace.limits]


def confusions(report: Report) -> list[str]:
    """Sentences about places where the recorder was unsure."""
    return [visible(text) for text in report.trace.confusions]


def _kernels_text(report: Report) -> str:
    """Which kernels of ours were on, and where they step aside all the same."""
    trace = report.trace
    if not trace.kernels:
        return ""
    aside = {"static": "; they step aside for fake tensors", "compiled": "; they step aside for compiled code"}
    return f"nhwc's own were on: {', '.join(trace.kernels)}{aside.get(trace.mode, '')}"


def _recorded(report: Report) -> str:
    trace = report.trace
    views = sum(call.view for call in trace.calls)
    copies = sum(len(call.copies) for call in trace.calls)
    reorders = sum(len(call.reorders) for call in trace.calls)
    parts = [plural(len(trace.calls), "operator call"), f"{plural(views, 'view')} among them"]
    parts += [f"{plural(copies, 'copy', 'copies')} inside kernels"] if copies else []
    parts += [f"{plural(reorders, 'reorder')} inside libraries"] if reorders else []
    return ", ".join(parts)


def _step_text(median_ms: float, spread_ms: float, repeats: int) -> str:
    if repeats == 1:
        return f"{ms_text(median_ms)} (one run)"
    return f"{ms_text(median_ms, spread_ms)} (median ± interquartile range of {plural(repeats, 'repeat')})"


def _input_text(tensor: TensorMeta) -> str:
    return f"{tensor.name or 'input'} {shape_text(tensor.shape)} {tensor.dtype}, {bytes_text(tensor.nbytes)}"
