"""The lines of gpu_check.py: what was claimed, what was measured, and whether it holds; no GPU is needed here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from nhwc.timing import Benchmark, Ratio


class Answer(StrEnum):
    """Whether a claim holds on this GPU."""

    HOLDS = "holds"
    FAILS = "does not hold"
    CANNOT_TELL = "cannot tell"
    NO_CLAIM = "no claim"
    FAILED = "failed"
    NOT_REACHED = "not reached"


@dataclass(frozen=True)
class Line:
    """One line of the summary.

    measured: one sentence. images_per_s: contiguous and channels last, None where nothing was timed.
    raw: the measurement or verification as JSON-able data.
    """

    section: str
    name: str
    claim: str
    measured: str
    answer: Answer
    images_per_s: tuple[float, float] | None = None
    raw: Any = None


def judge(ratio: Ratio, least: float | None) -> Answer:
    """A claim of being at least ``least`` times as fast, against the whole interval of a ratio.

    >>> judge(Ratio(1.31, 1.29, 1.33, 12), 1.22), judge(Ratio(1.2, 1.1, 1.3, 12), 1.22)
    (<Answer.HOLDS: 'holds'>, <Answer.CANNOT_TELL: 'cannot tell'>)
    """
    if least is None:
        return Answer.NO_CLAIM
    if ratio.low >= least:
        return Answer.HOLDS
    return Answer.FAILS if ratio.high < least else Answer.CANNOT_TELL


def timing_line(section: str, name: str, claim: str, least: float | None, found: Benchmark, raw: Any) -> Line:
    """The line of a measurement of two variants, the baseline first."""
    base, other = found.variants
    if other.failure or other.ratio is None:
        return Line(section, name, claim, other.failure or "no ratio was measured", Answer.FAILED, raw=raw)
    ratio = other.ratio
    answer = Answer.CANNOT_TELL if found.unstable else judge(ratio, least)
    told = f"{ratio.estimate:.3f} times as fast ({ratio.low:.3f} to {ratio.high:.3f}) at batch {found.batch}"
    speeds = found.throughput(base), found.throughput(other)
    if found.unstable:
        told += f"; {found.unstable[0]}"
    if speeds[0] is None or speeds[1] is None:
        return Line(section, name, claim, told, answer, raw=raw)
    told += f", {speeds[0]:.0f} to {speeds[1]:.0f} a second"
    return Line(section, name, claim, told, answer, (speeds[0], speeds[1]), raw)


def render(lines: Sequence[Line]) -> str:
    """The summary: sections with their lines, and how many claims hold."""
    text = []
    for section in dict.fromkeys(line.section for line in lines):
        text += ["", section]
        for line in lines:
            if line.section == section:
                claim = f" (claim: {line.claim})" if line.claim else ""
                text.append(f"  {line.answer:<13}  {line.name}: {line.measured}{claim}")
    counts = {answer: sum(line.answer is answer for line in lines) for answer in Answer}
    told = ", ".join(f"{count} {answer}" for answer, count in counts.items() if count)
    return "\n".join([*text, "", f"In all: {told or 'nothing was run'}."]).lstrip("\n")
