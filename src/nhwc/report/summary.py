"""The first sentence of every report: is the step in channels last end to end, and if not, what is lost and to whom."""

from __future__ import annotations

from enum import StrEnum

from nhwc.model import Report, Severity, StepError, Trace
from nhwc.report.culprits import Cost, Culprit, cost_of, culprits, notes
from nhwc.report.formatting import (
    bytes_text,
    module_text,
    ms_text,
    operator_text,
    percent_text,
    plural,
    source_text,
    visible,
)
from nhwc.strides import LayoutKind, layout

_CHANNELS_LAST = (LayoutKind.CHANNELS_LAST, LayoutKind.CHANNELS_LAST_3D)
_UNSEEN = {
    "static": " as far as a static trace can see",
    "compiled": " as far as a compiled step shows itself",
}


class Verdict(StrEnum):
    """What a report comes down to, worst first."""

    RAISES = "raises"
    WRONG = "wrong numbers"
    LOST = "lost"
    UNUSED = "not in channels last"
    CLEAN = "clean"


def verdict(report: Report) -> Verdict:
    """The worst thing that a report has to say."""
    if report.trace.error is not None:
        return Verdict.RAISES
    if any(finding.severity is Severity.ERROR for finding in report.findings):
        return Verdict.WRONG
    if any(finding.severity is Severity.WARNING for finding in report.findings):
        return Verdict.LOST
    return Verdict.CLEAN if uses_channels_last(report.trace) else Verdict.UNUSED


def uses_channels_last(trace: Trace) -> bool:
    """Whether any operator of the step wrote a tensor that is in channels last and not in contiguous format.

    The operators of a compiled graph tell no results: there, whether any of them read one.
    """
    seen = {
        (tensor.shape, tensor.strides)
        for call in trace.calls
        if not call.view
        for tensor in (call.inputs if trace.mode == "compiled" else call.outputs)
    }
    return any(layout(shape, strides).kind in _CHANNELS_LAST for shape, strides in seen)


def headline(report: Report) -> str:
    """One sentence, or two where the step raises or its numbers can be wrong and it loses time besides.

    >>> from nhwc.model import Environment, Trace
    >>> environment = Environment("2.14", "3.11", "cpu", "x86", 2, "0.1")
    >>> headline(Report(Trace("net", "eager", False, environment, ())))
    'Not in channels last: none of the 0 operator calls wrote a 4-D or 5-D tensor in channels last.'
    """
    found, seen = culprits(report), verdict(report)
    if seen is Verdict.RAISES and report.trace.error is not None:
        others = [culprit for culprit in found if report.trace.error.call not in culprit.first.call_indices]
        return " ".join([_raising(report.trace, report.trace.error), *_wrong(others), *_lost(report, others)])
    if seen in (Verdict.WRONG, Verdict.LOST):
        return " ".join([*_wrong(found), *_lost(report, found)])
    calls = plural(len(report.trace.calls), "operator call")
    if seen is Verdict.UNUSED:
        return f"Not in channels last: none of the {calls} wrote a 4-D or 5-D tensor in channels last."
    risks = len(notes(report))
    besides = f"; {plural(risks, 'note')} below" if risks else ""
    unseen = _UNSEEN.get(report.trace.mode, "")
    return f"Channels last end to end: no activation is copied, lost or reordered in {calls}{unseen}{besides}."


def _raising(trace: Trace, error: StepError) -> str:
    where = ""
    call = next((call for call in trace.calls if call.index == error.call), None)
    if call is not None:
        where = f" in {operator_text(call.operator)} ({module_text(call.module)}, {source_text(call.source)})"
    format_words = " in channels last" if trace.conversion or uses_channels_last(trace) else ""
    before = f"what follows covers the {plural(len(trace.calls), 'operator call')} up to there"
    return visible(
        f"The step raises{format_words}: {error.type}{where}: {error.message.strip().rstrip('.')}; {before}."
    )


def _wrong(found: list[Culprit]) -> list[str]:
    wrong = [culprit for culprit in found if culprit.first.severity is Severity.ERROR]
    if not wrong:
        return []
    first = wrong[0]
    places = len(first.findings)
    in_places = f", in {places} places" if places > 1 else ""
    more = f"; {plural(len(wrong) - 1, 'more such fault')} below" if len(wrong) > 1 else ""
    where = f"({first.modules}, {visible(source_text(first.first.source))}{in_places})"
    return [f"Numbers can be wrong: {visible(first.first.message.strip().rstrip('.'))} {where}{more}."]


def _lost(report: Report, found: list[Culprit]) -> list[str]:
    costing = [culprit for culprit in found if culprit.first.severity is not Severity.ERROR]
    if not costing:
        return []
    first, cost = costing[0], cost_of(finding for culprit in costing for finding in culprit.findings)
    after = cost_of(finding for culprit in costing for finding in culprit.consequences)
    everything = cost_of(finding for culprit in costing for finding in culprit.findings + culprit.consequences)
    follow = ""
    if after.calls:
        follow = f", and {plural(after.calls, 'call')} that {'follows' if after.calls == 1 else 'follow'},"
    only_slow = all(finding.kind == "slow" for culprit in costing for finding in culprit.findings)
    lead = "In channels last end to end, but slow in it" if only_slow else "Not in channels last end to end"
    what = _cost_text(report, everything)
    if len(costing) == 1:
        return [f"{lead}: {_culprit_text(first)}{follow} {what}."]
    calls = f"{plural(cost.calls, 'operator call')} from {len(costing)} culprits"
    most = "" if first.whole.ms is None or first.whole.is_noise else f", {ms_text(first.whole.ms)} of it"
    return [f"{lead}: {calls}{follow} {what}; the first is {_culprit_text(first)}{most}."]


def _culprit_text(culprit: Culprit) -> str:
    calls = f"{plural(culprit.own.calls, 'call')} of {culprit.operator}"
    function = f" in {culprit.function}" if culprit.function else ""
    where = [culprit.phase, visible(source_text(culprit.first.source)), culprit.modules]
    return f"{calls}{function} ({'; '.join(part for part in where if part)})"


def _cost_text(report: Report, cost: Cost) -> str:
    one, step = cost.calls == 1, report.trace.step
    verb, moved = "costs" if one else "cost", f"{'moves' if one else 'move'} {bytes_text(cost.bytes)}"
    if cost.ms is None:
        return f"{moved} (time not measured)"
    of_step = "" if step is None else f" of {ms_text(step.median_ms)}"
    if cost.is_noise:
        return f"{verb} no more than the noise ({ms_text(cost.ms, cost.spread_ms)}{of_step}) and {moved}"
    share = f" ({percent_text(cost.share(report))})" if step is not None else ""
    return f"{verb} {ms_text(cost.ms)}{of_step}{share} and {moved}"
