"""Findings as a reader wants them: culprits ranked by cost, each with what follows from it, then notes.

Findings that share code, operator, source line and phase are one culprit in several places: sixteen blocks that shuffle
their channels on one line are fixed once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nhwc.model import Finding, Phase, Report, Severity
from nhwc.report.formatting import modules_text, ms_text, operator_text, plural, visible

if TYPE_CHECKING:
    from collections.abc import Iterable

_GENERIC_FUNCTIONS = ("", "forward", "_forward", "_forward_impl", "__call__", "<module>", "<lambda>")


@dataclass(frozen=True)
class Cost:
    """What findings cost together.

    ms, spread_ms: over the findings that were measured, None where none was. Findings are measured one by one, so
    their spreads add up as independent ones do: the root of the sum of squares.
    """

    calls: int
    bytes: int
    ms: float | None
    spread_ms: float | None

    @property
    def is_noise(self) -> bool:
        """Whether the time is no larger than its spread, so that nobody can tell it from nothing."""
        return self.ms is not None and self.spread_ms is not None and self.ms <= self.spread_ms

    def share(self, report: Report) -> float | None:
        """``ms`` over the step's, 0 to 1; None where either is missing."""
        step = report.trace.step
        return None if step is None or self.ms is None or not step.median_ms else self.ms / step.median_ms


def cost_of(findings: Iterable[Finding]) -> Cost:
    """The sum of what findings cost; notes cost nothing."""
    costing = [finding for finding in findings if finding.severity is not Severity.NOTE]
    times = [finding.ms for finding in costing if finding.ms is not None]
    spreads = [finding.ms_spread for finding in costing if finding.ms_spread is not None]
    return Cost(
        calls=sum(finding.calls for finding in costing),
        bytes=sum(finding.bytes for finding in costing),
        ms=sum(times) if times else None,
        spread_ms=math.hypot(*spreads) if spreads else None,
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
    def function(self) -> str:
        """The function that called the operator, where its name says something."""
        source = self.first.source
        return "" if source is None or _is_generic(source.function) else visible(source.function)

    @property
    def phase(self) -> str:
        """ "backward" or "optimizer", where neither the phase is forward nor the operator's name says it."""
        said = self.first.phase is Phase.FORWARD or self.operator.endswith("_backward")
        return "" if said else self.first.phase.value

    @property
    def title(self) -> str:
        """Operator, function and phase: "div in SqueezeExcitation._scale (backward)"."""
        function = f" in {self.function}" if self.function else ""
        return f"{self.operator}{function}{f' ({self.phase})' if self.phase else ''}"

    @property
    def modules(self) -> str:
        """The span of module paths."""
        return visible(modules_text([finding.module for finding in self.findings]))

    @property
    def advice(self) -> tuple[str, ...]:
        """Each different advice once."""
        return tuple(dict.fromkeys(visible(finding.advice) for finding in self.findings if finding.advice))


def kernel_text(culprit: Culprit) -> str:
    """What the kernels of nhwc.kernels would save here: "instance_norm would save 12 ms"; empty where none helps."""
    saved: dict[str, list[float]] = {}
    for finding in culprit.findings + culprit.consequences:
        if finding.kernel is not None:
            saved.setdefault(finding.kernel, []).extend([finding.kernel_ms] if finding.kernel_ms is not None else [])
    return ", ".join(f"{visible(name)} {_saving(times)}" for name, times in saved.items())


def _saving(times: list[float]) -> str:
    if not times:
        return "would help (not measured)"
    return f"would save {ms_text(sum(times))}" if sum(times) > 0 else "saves no time here"


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


def _is_generic(function: str) -> bool:
    return function.rpartition(".")[2] in _GENERIC_FUNCTIONS


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
        made.append(Culprit(0, tuple(sorted(group, key=_first_call)), tuple(after)))
    return made


def _first_call(finding: Finding) -> int:
    """Places are told in the order in which they ran, whatever each costs."""
    return min(finding.call_indices, default=0)


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
