"""Findings joined with the kernels of nhwc.kernels: which would avoid each, and what it would save."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

from nhwc import kernels
from nhwc.api.progress import Progress
from nhwc.kernels import Kernel, replacing
from nhwc.measure import Trial, composite, savings
from nhwc.measure.formats import is_split
from nhwc.model import Call, Finding, Measurement, Phase, Trace
from nhwc.rules.flow import COPIES, EXPLICIT_CALLERS, copy_ends
from nhwc.rules.order import order_of

_KINDS = frozenset({"copy", "loss", "slow"})
#: A composite as the user calls it → the one that it calls in turn and that a kernel replaces, told by its copies.
_CALLS_IN_TURN = {"aten::pad": "aten::_pad_circular"}


def with_kernels(
    trace: Trace, findings: Sequence[Finding], repeats: int, budget_s: float, tell: Progress
) -> list[Finding]:
    """``findings`` with the names of the kernels that would help, and what they would save where that can be measured.

    A culprit, and a consequence that a kernel replaces itself, is measured as it ran against the same with the kernel
    on. What follows from a culprit whose kernel keeps the format is saved whole. Kernels that were on when the step ran
    are not named. repeats: 0 measures nothing.
    """
    named = {finding.id: kernel for finding in findings if (kernel := _kernel_of(finding, trace)) is not None}
    mended = {name: kernel for name, kernel in named.items() if not _converts(kernel)}
    trials: dict[int, Trial] = {}
    for finding in findings:
        culprit = mended.get(finding.cause or "")
        if finding.id in named and (culprit is None or named[finding.id] is culprit):
            trials.update(_trials(finding, named[finding.id], trace))
    saved = savings(trials, repeats, budget_s, lambda done, total: tell("kernels", done, total)) if repeats else {}
    return [
        _with_kernel(finding, named.get(finding.id), mended.get(finding.cause or ""), saved) for finding in findings
    ]


def _with_kernel(
    finding: Finding, own: Kernel | None, culprits: Kernel | None, saved: dict[int, Measurement]
) -> Finding:
    measured = [saved[index].median_ms for index in finding.call_indices if index in saved]
    ms = sum(measured) if measured and len(measured) == len(finding.call_indices) else None
    if culprits is not None:
        return replace(finding, kernel=culprits.name, kernel_ms=finding.ms if ms is None else ms)
    if own is None or (_converts(own) and ms is not None and ms <= 0.0):
        return finding
    if _converts(own):
        return replace(finding, kernel=own.name, kernel_ms=ms)
    advice = f"run the step inside `with nhwc.kernels.use():`: the kernel {own.name} keeps channels last, and is faster"
    if finding.kind != "slow":
        advice = f"run the step inside `with nhwc.kernels.use():`: the kernel {own.name} keeps channels last"
    return replace(finding, kernel=own.name, kernel_ms=ms, advice=advice)


def _converts(kernel: Kernel) -> bool:
    """Whether a kernel only makes the copy between formats faster, so that the format after it stays as it was."""
    return kernel is replacing("aten::clone")


def _kernel_of(finding: Finding, trace: Trace) -> Kernel | None:
    if finding.kind not in _KINDS or not finding.call_indices or trace.mode == "compiled":
        return None
    found = [_kernel_of_call(trace.calls[index], trace.calls) for index in finding.call_indices]
    first = found[0]
    if first is None or any(each is not first for each in found) or first.name in kernels.active():
        return None
    ranks = {len(meta.shape) for index in finding.call_indices for meta in trace.calls[index].inputs}
    if not ranks & set(first.ranks):
        return None
    return first


def _kernel_of_call(call: Call, calls: Sequence[Call]) -> Kernel | None:
    if call.phase is Phase.OPTIMIZER or not call.inputs or any(meta.device != "cpu" for meta in call.inputs):
        return None
    forward = None if call.forward is None else _of_composite(calls[call.forward])
    if call.name not in COPIES:
        return replacing(call.operator) or _of_composite(call) or forward
    source, target = copy_ends(call)
    if source is None or target is None:
        return None
    if _is_shuffle(call):
        return replacing("aten::channel_shuffle")
    found = _of_composite(call) or forward
    if found is not None:
        return found
    between = len(source.shape) in {4, 5} and source.dtype == target.dtype and order_of(source) is not order_of(target)
    return replacing("aten::clone") if between and call.name == "clone" else None


def _of_composite(call: Call) -> Kernel | None:
    """The kernel of the composite operator that ``call`` is a part of."""
    if call.caller.rpartition("::")[2] in EXPLICIT_CALLERS:  # what copies is not one thing: told by the copy
        return None
    found = replacing(call.caller)
    if found is None and call.name in COPIES and call.caller in _CALLS_IN_TURN:
        found = replacing(_CALLS_IN_TURN[call.caller])
    return found


def _is_shuffle(call: Call) -> bool:
    """Whether a copy is that of a channel shuffle by hand; what an earlier one made contiguous is shuffled so too."""
    source, _ = copy_ends(call)
    return call.name == "clone" and source is not None and is_split(source)


def _trials(finding: Finding, kernel: Kernel, trace: Trace) -> dict[int, Trial]:
    """Call index → trial, for every call of a finding that can be run with the kernel on."""
    trials = {}
    raising = None if trace.error is None else trace.error.call
    for index in finding.call_indices:
        ends = _ends(trace.calls, index, kernel) if index != raising else None
        if ends is not None:
            trials[index] = Trial(*ends, kernel.name, functools.partial(kernels.use, kernel.name))
    return trials


def _ends(calls: Sequence[Call], index: int, kernel: Kernel) -> tuple[Call, Call] | None:
    """The call as it ran, and the call that meets the kernel."""
    call = calls[index]
    if replacing(call.operator) is kernel:
        return call, call
    if _is_shuffle(call):  # below the operator that a user calls, and that the kernel replaces, lies a plain copy
        return call, replace(call, operator="aten.contiguous.default", arguments=({"tensor": 0},), keywords=())
    whole = composite(calls, index)
    return None if whole is None else (whole, whole)
