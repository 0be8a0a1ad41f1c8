"""Findings as a reader wants them: culprits ranked by cost, each with what follows from it, then notes.

Findings that share code, operator, source line and phase are one culprit in several places: sixteen blocks that shuffle
their channels on one line are fixed once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nhwc.model import Finding, Phase, Report, Severity
from nhwc.report.formatting import modules_text, operator_text, plural, visible

if TYPE_CHECKING:
    from collections.abc import Iterable

_GENERIC_FUNCTIONS = ("", "forward", "_forward", "_forward_impl", "__call__", "<module>", "<lambda>")


@dataclass(frozen=True)
class Cost:
    """What findings cost together.

    ms, spread_ms: the sums over the findings that were measured, None where none was. Spreads are added up as if all
    ran slow together, so a sum never claims to be surer than its parts.
    """

    calls: int
    bytes: int
    ms: float | None
    spread_ms: float | None

    def share(self, report: Report) -> float | None:
        """``ms`` over the step's, 0 to 1; None where either is missing."""
        step = report.trace.step
        return None if step is None or self.ms is None or not step.median_ms else self.ms / step.median_ms


def cost_of(findings: Iterable[Finding]) -> Cost:
    """The sum of what findings cost; notes cost nothing."""
    costing = [finding for finding in findings if finding.severity is not Severity.NOTE]
    return Cost(
        calls=sum(finding.calls for finding in costing),
        bytes=sum(finding.bytes for finding in costing),
        ms=_total(finding.ms for finding in costing),
        spread_ms=_total(finding.ms_spread for finding in costing),
    )


@dataclass(frozen=True)
class Culprit:
    """One line of code that loses the format, in one or more modules, and what follows from it.

    rank: 1 is the first in the report; 0 for a note. findings: alike but for their module. consequences: the findings
    that trace back to one of them, however far.
    """

    rank: int
    findings: tuple[Finding, ...]
    consequences: tuple[Finding, ...]

    @property
    def first(self) -> Finding:
        """The finding that stands for all where they are alike."""
        return self.findings[0]

    @property
    def own(self) -> Cost:
        return cost_of(self.findings)

    @property
    def after(self) -> Cost:
        return cost_of(self.consequences)

    @property
    def whole(self) -> Cost:
        return cost_of(self.findings + self.consequences)

    @property
    def operator(self) -> str:
        """The operator's short name."""
        return visible(operator_text(self.first.operator))

    @property
    def title(self) -> str:
        """The operator, and the function that called it where its name says something."""
        source = self.first.source
        function = "" if source is None or source.function in _GENERIC_FUNCTIONS else visible(source.function)
        said = self.first.phase is Phase.FORWARD or self.operator.endswith("_backward")
        phase = "" if said else f" ({self.first.phase.value})"
        return f"{self.operator}{f' in {function}' if function else ''}{phase}"

    @property
    def modules(self) -> str:
        """The span of module paths."""
        return visible(modules_text([finding.module for finding in self.findings]))

    @property
    def advice(self) -> tuple[str, ...]:
        """Each different advice once."""
        return tuple(dict.fromkeys(visible(finding.advice) for finding in self.findings if finding.advice))


def culprits(report: Report) -> list[Culprit]:
    """Errors first, then by milliseconds with what follows, then by bytes."""
    found = [culprit for culprit in _groups(report) if not _is_note(culprit)]
    return [Culprit(rank, each.findings, each.consequences) for rank, each in enumerate(sorted(found, key=_order), 1)]


def notes(report: Report) -> list[Culprit]:
    """Risks that cost nothing now, in the order in which they were found."""
    return [culprit for culprit in _groups(report) if _is_note(culprit)]


def consequences_text(culprit: Culprit) -> str:
    """What follows from a culprit: "and 16 calls after it: split, convolution"."""
    calls = sum(finding.calls for finding in culprit.consequences)
    names = dict.fromkeys(visible(operator_text(finding.operator)) for finding in culprit.consequences)
    return f"and {plural(calls, 'call')} after it: {', '.join(names)}"


def _groups(report: Report) -> list[Culprit]:
    roots = _roots(report.findings)
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for finding in report.findings:
        if roots[finding.id] == finding.id:
            groups.setdefault(_likeness(finding), []).append(finding)
    made = []
    for group in groups.values():
        ids = {finding.id for finding in group}
        after = [finding for finding in report.findings if roots[finding.id] in ids and finding.id not in ids]
        made.append(Culprit(0, tuple(group), tuple(after)))
    return made


def _roots(findings: list[Finding]) -> dict[str, str]:
    """The finding at the start of each chain of causes; an unknown cause or a circle of causes starts a chain."""
    causes = {finding.id: finding.cause for finding in findings}
    roots = {}
    for start in causes:
        seen, here = {start}, start
        while (cause := causes[here]) is not None and cause in causes:
            if cause in seen:
                here = min(seen)
                break
            seen.add(cause)
            here = cause
        roots[start] = here
    return roots


def _likeness(finding: Finding) -> tuple[object, ...]:
    line = None if finding.source is None else (finding.source.file, finding.source.line)
    return finding.code, finding.operator, finding.severity, finding.phase, finding.kind, line


def _is_note(culprit: Culprit) -> bool:
    return all(each.severity is Severity.NOTE for each in culprit.findings + culprit.consequences)


def _order(culprit: Culprit) -> tuple[bool, float, int]:
    whole = culprit.whole
    return culprit.first.severity is not Severity.ERROR, -(whole.ms or 0.0), -whole.bytes


def _total(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
