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
    wanted = sorted(RULES) if codes is None else list(codes)
    groups: dict[object, tuple[Rule, list[Draft]]] = {}
    for code in wanted:
        for draft in RULES[code].find(flow):
            key = (code, draft.operator, draft.phase, draft.cause, draft.key or (draft.module, draft.source))
            groups.setdefault(key, (RULES[code], []))[1].append(draft)
    merged = [_merge(rule, drafts, f"F{number}") for number, (rule, drafts) in enumerate(groups.values(), start=1)]
    by_call: dict[int, str] = {}
    for finding, _ in merged:
        for index in finding.call_indices:
            by_call.setdefault(index, finding.id)
    findings = [
        replace(finding, cause=by_call.get(cause) if cause is not None and by_call.get(cause) != finding.id else None)
        for finding, cause in merged
    ]
    return rank(findings)


def _merge(rule: Rule, drafts: list[Draft], identity: str) -> tuple[Finding, int | None]:
    first = drafts[0]
    times = [draft.ms for draft in drafts if draft.ms is not None]
    finding = Finding(
        id=identity,
        code=rule.code,
        kind=rule.kind,
        severity=first.severity or rule.severity,
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
    return finding, first.cause


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
