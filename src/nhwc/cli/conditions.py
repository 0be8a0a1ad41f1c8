"""``--fail-on``: conditions on a report that make the command exit with 1."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from nhwc.errors import TargetError
from nhwc.model import Report

_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_RULE = re.compile(r"[A-Z]{2,}\d+")
_UNSEEN_STATICALLY = ("NH103", "NH104")  # reorders inside libraries: nothing runs, so that no library does
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*(%|[KMG]?I?B)", re.IGNORECASE)


class Measure(Enum):
    """What a condition looks at."""

    ANY = "any"
    RULE = "rule"
    BYTES = "bytes"
    PERCENT = "percent"


@dataclass(frozen=True)
class Condition:
    """One --fail-on. ``limit`` is in bytes or in percent of the step, and counts only for those two measures."""

    text: str
    measure: Measure
    rule: str = ""
    limit: float = 0.0

    def held_by(self, report: Report) -> str:
        """Why this condition holds for ``report``, as a sentence; empty where it does not hold."""
        from nhwc.report.culprits import cost_of, culprits
        from nhwc.report.formatting import bytes_text, ms_text, percent_text, plural

        if self.measure is Measure.ANY:
            findings, grouped = len(report.culprits), len(culprits(report))
            of = f" of {plural(grouped, 'culprit')}" if grouped != findings else ""
            return f"{plural(findings, 'finding')}{of}" if findings else ""
        if self.measure is Measure.RULE:
            count = sum(finding.calls for finding in report.findings if finding.code == self.rule)
            return f"{self.rule} was found in {plural(count, 'call')}" if count else ""
        if self.measure is Measure.BYTES:
            lost = report.lost_bytes
            return f"{bytes_text(lost)} moved, over {bytes_text(round(self.limit))}" if lost > self.limit else ""
        share = report.lost_share
        if share is None:
            raise TargetError(f"--fail-on {self.text} cannot be answered: this report measured no times")
        cost = cost_of(report.findings)
        if cost.is_noise or share * 100 <= self.limit:  # nobody can tell a loss within its spread from none
            return ""
        return f"{percent_text(share)} of the step lost ({ms_text(cost.ms, cost.spread_ms)}), over {self.limit:g} %"


def refuse_unanswerable(conditions: Sequence[Condition], static: bool, repeats: int) -> None:
    """Raise TargetError for a condition that could never hold in an audit of this kind."""
    for condition in conditions:
        if condition.measure is Measure.PERCENT and (static or repeats == 0):
            raise TargetError("--fail-on a percentage needs measured times; leave out --static and --repeats 0")
        if static and condition.rule in _UNSEEN_STATICALLY:
            raise TargetError(
                f"--fail-on {condition.rule} can never hold with --static, which runs no library that could reorder; "
                "leave one out"
            )


def parse_condition(text: str, rules: Sequence[str]) -> Condition:
    """Read one --fail-on: ``any``, a rule code, an amount of bytes or a percentage.

    Raises TargetError for anything else, an unknown rule above all: a misspelt one would never fail.

    >>> parse_condition("1.5MB", []).limit
    1500000.0
    """
    word = text.strip()
    if word.lower() == "any":
        return Condition(text, Measure.ANY)
    if _RULE.fullmatch(word.upper()):
        if word.upper() not in rules:
            raise TargetError(f"--fail-on {word}: no such rule; the rules are {', '.join(rules)}")
        return Condition(text, Measure.RULE, rule=word.upper())
    amount = _AMOUNT.fullmatch(word)
    if amount is None:
        raise TargetError(f"--fail-on {text!r} is no rule, bytes or percent; write NH101, 1MB, 5% or any")
    number, unit = float(amount[1]), amount[2].upper()
    if unit == "%":
        return Condition(text, Measure.PERCENT, limit=number)
    return Condition(text, Measure.BYTES, limit=number * _UNITS[unit])
