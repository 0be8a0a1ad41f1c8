"""Findings joined with the kernels of nhwc.kernels: which would avoid each, and what it would save."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

from nhwc import kernels
from nhwc.kernels import Kernel, native, replacing
from nhwc.measure import Trial, composite, savings
from nhwc.measure.formats import is_split
from nhwc.model import Call, Finding, Measurement, Phase, Trace
from nhwc.progress import Progress
from nhwc.rules.advice import without_kernel
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
    found = {finding.id: kernel for finding in findings if (kernel := _kernel_of(finding, trace)) is not None}
    missing = {finding.id for finding in findings if finding.id in found and _lacks_library(finding, trace)}
    named = {each: kernel for each, kernel in found.items() if each not in missing}
    mended = {name: kernel for name, kernel in named.items() if not _converts(kernel)}
    trials: dict[int, Trial] = {}
    for finding in findings:
        culprit = mended.get(finding.cause or "")
        if finding.id in named and (culprit is None or named[finding.id] is culprit):
            trials.update(_trials(finding, named[finding.id], trace))
    saved = savings(trials, repeats, budget_s, lambda done, total: tell("kernels", done, total)) if repeats else {}
    return [
        _without_library(finding, found[finding.id])
        if finding.id in missing and finding.cause not in mended
        else _with_kernel(finding, named.get(finding.id), mended.get(finding.cause or ""), saved)
        for finding in findings
    ]


def told_without_library(trace: Trace) -> Trace:
    """``trace`` with a sentence where kernels were on that lack their compiled library."""
    if not trace.kernels or native.is_available():
        return trace
    sentence = (
        "nhwc's kernels were on without their compiled library: some do nothing then, some less; `nhwc doctor` says "
        "what is lost"
    )
    return replace(trace, limits=(*trace.limits, sentence))


def _without_library(finding: Finding, kernel: Kernel) -> Finding:
    """A finding whose kernel would help, if its compiled library were there."""
    if _converts(kernel):  # what is advised against the copy itself is worth more
        return finding
    gain = "be faster" if finding.kind == "slow" else "keep channels last"
    needs = (
        f"the kernel {kernel.name} would {gain}, but needs the compiled library, which is missing here: "
        "`nhwc doctor` says why"
    )
    rest = without_kernel(finding.advice, kernel.name)
    return replace(finding, advice=f"{rest}; {needs}" if rest else needs)


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
    return kernel is _mending("aten::clone")


def _mending(operator: str) -> Kernel | None:
    """The kernel that replaces an operator, unless it is there for speed alone."""
    kernel = replacing(operator)
    return kernel if kernel is not None and kernel.mends else None


def _kernel_of(finding: Finding, trace: Trace) -> Kernel | None:
    if finding.kind not in _KINDS or not finding.call_indices or trace.mode == "compiled":
        return None
    found = [_kernel_of_call(trace.calls[index], trace.calls) for index in finding.call_indices]
    first = found[0]
    if first is None or any(each is not first for each in found) or first.name in trace.kernels:
        return None
    ranks = {len(meta.shape) for index in finding.call_indices for meta in trace.calls[index].inputs}
    if not ranks & set(first.ranks):
        return None
    return first


def _lacks_library(finding: Finding, trace: Trace) -> bool:
    """Whether its kernel does nothing for it here, for want of the compiled library."""
    if native.is_available():
        return False
    operators = [_replaced(trace.calls[index], trace.calls) for index in finding.call_indices]
    kernel = _mending(operators[0] or "")
    if kernel is None:
        return False
    if finding.kind == "slow" and kernel.native:  # a composition keeps the format, and is no faster
        return True
    return all(kernel.is_native_only(each or "") for each in operators)


def _kernel_of_call(call: Call, calls: Sequence[Call]) -> Kernel | None:
    return _mending(_replaced(call, calls) or "")


def _replaced(call: Call, calls: Sequence[Call]) -> str | None:
    """The operator that a kernel replaces, and that ``call`` is or is a part of."""
    if call.phase is Phase.OPTIMIZER or not call.inputs or any(meta.device != "cpu" for meta in call.inputs):
        return None
    forward = None if call.forward is None else _composite(calls[call.forward])
    if call.name not in COPIES:
        return call.operator if _mending(call.operator) else _composite(call) or forward
    source, target = copy_ends(call)
    if source is None or target is None:
        return None
    if _is_shuffle(call):
        return "aten::channel_shuffle"
    found = _composite(call) or forward
    if found is not None:
        return found
    between = len(source.shape) in {4, 5} and source.dtype == target.dtype and order_of(source) is not order_of(target)
    return "aten::clone" if between and call.name == "clone" else None


def _composite(call: Call) -> str | None:
    """The composite operator with a kernel that ``call`` is a part of."""
    if call.caller.rpartition("::")[2] in EXPLICIT_CALLERS:  # what copies is not one thing: told by the copy
        return None
    found = call.caller if _mending(call.caller) else None
    if found is None and call.name in COPIES:
        found = _CALLS_IN_TURN.get(call.caller)
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
    if _mending(call.operator) is kernel:
        return call, call
    if _is_shuffle(call):  # below the operator that a user calls, and that the kernel replaces, lies a plain copy
        return call, replace(call, operator="aten.contiguous.default", arguments=({"tensor": 0},), keywords=())
    whole = composite(calls, index)
    return None if whole is None else (whole, whole)
