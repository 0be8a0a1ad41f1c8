"""All rules over one trace: drafts merged into Findings, consequences tied to their cause."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from nhwc.model import Finding, Phase, Severity, Trace
from nhwc.rules.flow import Flow
from nhwc.rules.registry import RULES, Draft, Rule


def find(trace: Trace, codes: Iterable[str] | None = None) -> list[Finding]:
    """The findings of every rule (or of those named), without times; culprits before consequences, notes last."""
    flow = Flow(trace)
    drafts = [
        (RULES[code], draft) for code in (sorted(RULES) if codes is None else codes) for draft in RULES[code].find(flow)
    ]
    of_call: dict[int, tuple[Rule, Draft]] = {}
    for rule, draft in sorted(
        drafts, key=lambda pair: pair[1].cause is not None
    ):  # those without a cause answer for a call
        if draft.call is not None:
            of_call.setdefault(draft.call, (rule, draft))
    # a consequence is tied to the group of its culprit, so that a culprit in a loop has its consequences merged too
    groups: dict[tuple[object, object], tuple[Rule, list[Draft]]] = {}
    for rule, draft in drafts:
        culprit = _culprit(draft, of_call)
        group, cause = _group(rule, draft), _group(*culprit) if culprit is not None else None
        groups.setdefault((group, cause), (rule, []))[1].append(draft)
    names = {key: f"F{number}" for number, key in enumerate(groups, start=1)}
    findings = [
        replace(_merge(rule, members, names[(group, cause)]), cause=names[(cause, None)] if cause is not None else None)
        for (group, cause), (rule, members) in groups.items()
    ]
    return rank(findings)


def _culprit(draft: Draft, of_call: dict[int, tuple[Rule, Draft]]) -> tuple[Rule, Draft] | None:
    """The draft without a cause that ``draft`` follows from in the end; None where no rule tells of that call."""
    seen: set[int] = set()
    found: tuple[Rule, Draft] | None = None
    cause = draft.cause
    while cause is not None and cause not in seen:
        seen.add(cause)
        found = of_call.get(cause)
        cause = found[1].cause if found is not None else None
    return found if found is not None and found[1] is not draft and found[1].cause is None else None


def _group(rule: Rule, draft: Draft) -> object:
    return rule.code, draft.operator, draft.phase, draft.key if draft.key is not None else (draft.module, draft.source)


def _merge(rule: Rule, drafts: list[Draft], identity: str) -> Finding:
    first = drafts[0]
    times = [draft.ms for draft in drafts if draft.ms is not None]
    return Finding(
        id=identity,
        code=rule.code,
        kind=rule.kind,
        severity=first.severity or (Severity.NOTE if rule.needs_time else rule.severity),
        operator=first.operator,
        module=first.module,
        source=first.source,
        phase=Phase(first.phase),
        shapes=tuple(meta.shape for meta in first.tensors),
        strides=tuple(meta.strides for meta in first.tensors),
        bytes=sum(draft.bytes for draft in drafts),
        message=first.message,
        advice=first.advice,
        calls=sum(draft.calls for draft in drafts),
        ms=sum(times) if times else None,
        call_indices=tuple(draft.call for draft in drafts if draft.call is not None),
    )


def rank(findings: list[Finding]) -> list[Finding]:
    """Errors first, then culprits by the cost of themselves and all that follows from them, notes last.

    Consequences stand right after their culprit.
    """
    following: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.cause is not None:
            following.setdefault(finding.cause, []).append(finding)

    def family(finding: Finding) -> list[Finding]:
        members = [finding]
        for member in members:
            members += following.get(member.id, [])
        return members

    def cost(finding: Finding) -> tuple[int, float, int]:
        members = family(finding)
        level = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}[finding.severity]
        return level, -sum(member.ms or 0.0 for member in members), -sum(member.bytes for member in members)

    heads = sorted((finding for finding in findings if finding.cause is None), key=cost)
    return [member for head in heads for member in family(head)]
