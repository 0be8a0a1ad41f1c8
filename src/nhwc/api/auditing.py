"""The verbs record and audit, and what renders, saves and loads their report."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from torch.utils._pytree import tree_map

from nhwc import kernels, rules
from nhwc import report as reports
from nhwc.api.remedies import told_without_library, with_kernels
from nhwc.api.showing import Showing
from nhwc.conversion import bring, converted
from nhwc.errors import ConversionError, ModelError, NhwcError, RecordingError
from nhwc.formats import layout_of
from nhwc.measure import Lost, replay, time_step
from nhwc.model import Finding, Measurement, Phase, Report, Severity, Trace
from nhwc.progress import Progress, quiet
from nhwc.recorder import Options, run_model
from nhwc.recorder import record as record_step
from nhwc.recorder.modules import unwrap
from nhwc.recorder.run import tensors_in
from nhwc.recorder.state import StepGuard
from nhwc.recorder.static import fake_mode
from nhwc.report.summary import headline
from nhwc.report.to_html import to_html_fragment
from nhwc.report.to_terminal import print_report
from nhwc.rules.flow import is_pure_conversion
from nhwc.schema import load_report as read_report
from nhwc.strides import LayoutKind

__all__ = [
    "AuditReport",
    "audit",
    "fake_mode",
    "load_report",
    "print_report",
    "record",
    "render",
]


@dataclass(frozen=True, repr=False)
class AuditReport(Showing, Report):
    """A report that shows itself: in a terminal, in a notebook, and in a file."""

    _kind = "audit"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.trace.target}: {headline(self)}>"

    def _repr_html_(self) -> str:
        return to_html_fragment(self)


def render(report: Report, format: str = "text", **options: Any) -> str:  # noqa: A002 the public word for it
    """``report`` in a registered format; RegistryError names the formats there are."""
    return reports.render(report, format, **options)


def load_report(source: Mapping[str, Any] | str | Path) -> AuditReport:
    """The report saved as JSON in a file (a path), a text or a dictionary; equal to the one that was saved.

    Raises SchemaError where it is not ours, is damaged, or comes from a newer nhwc.
    """
    loaded = read_report(source)
    return AuditReport(loaded.trace, loaded.findings)


def record(
    step: nn.Module | Callable[..., Any],
    *inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    train: bool = False,
    loss: Callable[[Any], torch.Tensor] | None = None,
    amp: torch.dtype | None = None,
    static: bool = False,
    process_group: Any | None = None,
    inner: bool = True,
    libraries: bool = True,
    target: str = "",
) -> Trace:
    """Run a model, or any callable such as a whole training step, once and return every operator call of it.

    A model runs as it is: in evaluation mode under ``torch.no_grad``, or with ``train`` in training mode with a
    backward pass (from ``loss(output)``, else from a gradient of ones). ``amp`` is an autocast dtype. ``static`` runs
    on fake tensors. ``process_group``: every rank records, and the ranks' layouts are compared.
    Modes, hooks, random state, buffers, gradients, optimizer state and training flags are afterwards as before.
    Raises ModelError where the step raises.

    >>> trace = record(nn.Conv2d(3, 8, 3), torch.randn(1, 3, 8, 8))
    >>> trace.calls[0].name
    'convolution'
    """
    options = Options(
        train=train,
        loss=loss,
        amp=amp,
        static=static,
        process_group=process_group,
        inner=inner,
        libraries=libraries,
        kernels_on=kernels.active,
        target=target,
    )
    return record_step(step, *inputs, kwargs=kwargs, options=options)


def audit(
    model: nn.Module | Callable[..., Any],
    *inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    train: bool = False,
    convert: bool | str = "auto",
    loss: Callable[[Any], torch.Tensor] | None = None,
    amp: torch.dtype | None = None,
    compile: bool = False,  # noqa: A002 torch's own word for it
    static: bool = False,
    process_group: Any | None = None,
    repeats: int = 5,
    budget_s: float = 60.0,
    target: str = "",
    progress: Progress | None = None,
) -> AuditReport:
    """Run one step and report what its memory formats cost, who causes it, where, and what to do.

    model: an ``nn.Module`` called with ``inputs`` and ``kwargs``, or any callable (a whole training step).
    convert: True audits the model in channels last: model and inputs are converted for the time of the audit and
        restored; False audits exactly what is given; "auto" converts where no weight is channels last yet.
    repeats: timings per finding; 0 measures nothing. budget_s: seconds that the timings may take at most.
    The other arguments are those of ``record``; ``compile`` audits ``torch.compile(model)``.
    progress: called with (stage, done, total).

    Raises ModelError where the step raises in contiguous format too; a step that raises only in channels last is a
    finding (NH403).

    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8 * 36, 4))
    >>> [finding.operator for finding in audit(model, torch.randn(2, 3, 8, 8)).culprits]
    ['flatten']
    """
    tell = progress or quiet
    if not callable(model):
        raise RecordingError(
            f"audit takes an nn.Module or a callable, got {type(model).__name__}; names are for the command line"
        )
    if repeats < 0:
        raise RecordingError(f"repeats={repeats} is below 0; 0 measures nothing")
    if compile and (static or not isinstance(model, nn.Module)):
        raise RecordingError("compile=True audits a model as it runs: pass an nn.Module, and leave static out")
    # only a model can be tried again in contiguous format, which tells a finding from an error of the user's
    again = isinstance(model, nn.Module) and not static
    options = Options(
        train=train,
        loss=loss,
        amp=amp,
        static=static,
        process_group=process_group,
        kernels_on=kernels.active,
        keep_error=again,
        target=target,
    )
    keywords = dict(kwargs or {})
    if compile:
        tell("compile", 0, 1)
        model = cast(nn.Module, torch.compile(model))
    with _in_format(model, inputs, keywords, convert) as (step_inputs, step_keywords, conversion):
        tell("record", 0, 1)
        trace = replace(record_step(model, *step_inputs, kwargs=step_keywords, options=options), conversion=conversion)
        trace = told_without_library(trace)
        tell("record", 1, 1)
        if trace.error is None and repeats > 0 and not static:
            trace = replace(trace, step=_step_time(model, step_inputs, step_keywords, options, trace, repeats))
    if trace.error is not None and isinstance(model, nn.Module):
        error = _error_in_contiguous(model, inputs, keywords, options)
        if error is not None:
            raise ModelError(f"the model raised {trace.error.type}: {trace.error.message}") from error
    findings, measured_from = rules.find(trace), time.monotonic()
    if repeats > 0 and trace.mode == "eager":
        trace, findings = _timed(trace, findings, repeats, budget_s, tell)
        left_s = budget_s - (time.monotonic() - measured_from)
        findings = with_kernels(trace, findings, repeats, left_s, tell)
    elif trace.mode == "compiled":
        findings = [_with_copy_times(finding, trace) for finding in findings]
    else:
        findings = with_kernels(trace, findings, 0, 0.0, tell)
    return AuditReport(trace, rules.rank(findings))


# -- formats for the time of an audit -----------------------------------------------------------------------------


@contextlib.contextmanager
def _in_format(
    model: nn.Module | Callable[..., Any], inputs: Sequence[Any], kwargs: Mapping[str, Any], convert: bool | str
) -> Iterator[tuple[Sequence[Any], Mapping[str, Any], str]]:
    """The inputs to run with, and one sentence on what was converted; the model is restored on leaving."""
    if convert not in (True, False, "auto"):
        raise ConversionError(f"convert={convert!r} is not known; use True, False or 'auto'")
    if not isinstance(model, nn.Module):
        yield inputs, kwargs, "audited as it is: a callable is not converted"
        return
    if convert is False:
        yield inputs, kwargs, "audited as it is"
        return
    if convert == "auto" and _has_channels_last(model):
        yield inputs, kwargs, "audited as it is: the model is in channels last already"
        return
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(converted(model))
        except ConversionError as error:
            if convert is True:
                raise
            yield inputs, kwargs, f"audited as it is, not converted: {error}"
            return
        moved = cast(tuple[Any, ...], bring(tuple(inputs), "auto"))
        named = cast(dict[str, Any], bring(dict(kwargs), "auto"))
        done = "model and inputs were converted to channels last for this audit and restored after it"
        yield moved, named, done + _left_contiguous([moved, named])


def _has_channels_last(model: nn.Module) -> bool:
    kinds = (LayoutKind.CHANNELS_LAST, LayoutKind.CHANNELS_LAST_3D)
    return any(
        parameter.dim() in (4, 5) and parameter.layout is torch.strided and layout_of(parameter).kind in kinds
        for parameter in unwrap(model).parameters()
    )


def _left_contiguous(inputs: Any) -> str:
    """What to add where an input of rank 4 or 5 was not converted, which integers and images of bytes are not."""
    kinds = sorted(
        str(tensor.dtype).removeprefix("torch.")
        for tensor in tensors_in(inputs)
        if tensor.layout is torch.strided and tensor.dim() in (4, 5) and layout_of(tensor).kind is LayoutKind.CONTIGUOUS
    )
    return (
        f"; inputs that are not floating point stayed contiguous ({', '.join(dict.fromkeys(kinds))})" if kinds else ""
    )


def _error_in_contiguous(
    model: nn.Module, inputs: Sequence[Any], kwargs: Mapping[str, Any], options: Options
) -> Exception | None:
    """What the same step raises when the model and its inputs are contiguous, None where it runs."""
    model = unwrap(model)

    def contiguous(value: Any) -> Any:
        return value.contiguous() if isinstance(value, torch.Tensor) and value.layout is torch.strided else value

    try:
        with converted(model, "contiguous"):
            # recorded, since only a recording puts back what a step writes besides buffers and gradients
            record_step(
                model,
                *tree_map(contiguous, tuple(inputs)),
                kwargs=tree_map(contiguous, dict(kwargs)),
                options=replace(options, keep_error=False, inner=False, libraries=False),
            )
    except ModelError as error:
        return error.__cause__ if isinstance(error.__cause__, Exception) else error
    except NhwcError as error:
        return error
    return None


# -- times ---------------------------------------------------------------------------------------------------------


def _step_time(
    model: nn.Module | Callable[..., Any],
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: Options,
    trace: Trace,
    repeats: int,
) -> Measurement | None:
    """Plain runs of a model. What must not run again (a callable, a model that writes more than its buffers) gives the
    sum of its operators' times on the CPU, and None elsewhere."""
    device = next((call.inputs[0].device for call in trace.calls if call.inputs), "cpu")
    if not isinstance(model, nn.Module) or _rewrites_itself(trace):
        if not device.startswith("cpu"):  # the profiler's operator times are then those of launching a kernel
            return None
        times = [call.ms for call in trace.calls if call.ms is not None]
        return Measurement(sum(times), 0.0, 1) if times else None

    def step() -> None:
        for parameter in model.parameters():
            parameter.grad = None
        run_model(model, inputs, kwargs, options)

    with StepGuard() as guard:
        guard.watch_module(model)
        return time_step(step, device, repeats)


def _rewrites_itself(trace: Trace) -> bool:
    """Whether the step writes memory older than itself that is no buffer, or draws from a generator of its own.

    A recording puts that back; plain runs, which nothing watches, would not.
    """
    parameters = {parameter.name for parameter in trace.parameters}
    born: set[int] = set()
    for call in trace.calls:
        for meta in (call.inputs[position] for position in call.mutates):
            is_buffer = meta.name is not None and meta.name not in parameters and not meta.name.startswith("input ")
            if meta.storage not in born and not is_buffer:
                return True
        if "'Generator'" in repr(call.arguments) or "'Generator'" in repr(call.keywords):
            return True
        born.update(meta.storage for meta in call.outputs)
    return False


def _timed(
    trace: Trace, findings: list[Finding], repeats: int, budget_s: float, tell: Progress
) -> tuple[Trace, list[Finding]]:
    """Findings with their times; those that only a measurement can confirm are dropped where it does not."""
    wanted = sorted({index for finding in findings for index in finding.call_indices})
    calls = [trace.calls[index] for index in wanted if trace.calls[index].phase is not Phase.OPTIMIZER]
    if trace.error is not None:
        calls = [call for call in calls if call.index != trace.error.call]
    whole = frozenset(call.index for call in calls if is_pure_conversion(call))
    follows = frozenset(index for finding in findings if finding.cause is not None for index in finding.call_indices)
    lost = replay(
        calls, whole, repeats, budget_s, lambda done, total: tell("measure", done, total), follows=follows - whole
    )
    timed = [_with_time(finding, lost, trace.step) for finding in findings]
    kept = [
        f
        for f in timed
        if not (rules.rule_for(f.code).needs_time and f.ms is not None and f.ms <= (f.ms_spread or 0.0))
    ]
    missing = len(calls) - len(lost)
    if missing:
        sentence = (
            f"{missing} of {len(calls)} calls could not be timed (time budget of {budget_s:g} s, or not replayable): "
            "their ms is missing"
        )
        trace = replace(trace, limits=(*trace.limits, sentence))
    return trace, kept


def _with_copy_times(finding: Finding, trace: Trace) -> Finding:
    """A compiled graph's calls cannot be run again: the copies inside their kernels, as this one run took them."""
    times = [copy.ms for index in finding.call_indices for copy in trace.calls[index].copies if copy.ms is not None]
    if not times or finding.ms is not None:
        return finding
    ms = sum(times)
    return replace(
        finding, ms=ms, share=ms / trace.step.median_ms if trace.step is not None and trace.step.median_ms else None
    )


def _with_time(finding: Finding, lost: Mapping[int, Lost], step: Measurement | None) -> Finding:
    measured = [lost[index].lost for index in finding.call_indices if index in lost]
    ms, spread = finding.ms, finding.ms_spread
    if measured and len(measured) == len(finding.call_indices):
        ms = sum(each.median_ms for each in measured)
        spread = math.sqrt(sum(each.spread_ms**2 for each in measured))
    share = ms / step.median_ms if ms is not None and step is not None and step.median_ms else None
    severity = finding.severity
    if rules.rule_for(finding.code).needs_time:  # a suspicion: the measurement confirms it
        severity = Severity.NOTE if ms is None else rules.rule_for(finding.code).severity
    return replace(finding, ms=ms, ms_spread=spread, share=share, severity=severity)
