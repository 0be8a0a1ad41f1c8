"""The frozen data of a suite: models, what a document claims for each, and what was measured here.

A ratio is as in nhwc.timing: above 1 is faster. A claim of "+8 % to +35 %" is a ratio from 1.08 to 1.35.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from nhwc.timing import Benchmark, Conditions, Ratio, VariantTiming, Verdict


class Standing(StrEnum):
    """Where an interval lies against the range that is claimed."""

    BELOW = "below"
    ABOVE = "above"
    WITHIN = "within"
    ACROSS = "across an edge"


@dataclass(frozen=True, slots=True)
class Claim:
    """A range of ratios that a document gives for a model. device: "cpu" or "cuda"; where: the device in its words."""

    device: str
    where: str
    low: float
    high: float

    def standing(self, ratio: Ratio) -> Standing:
        """Where the interval of ``ratio`` lies against this range."""
        if ratio.high < self.low:
            return Standing.BELOW
        if ratio.low > self.high:
            return Standing.ABOVE
        return Standing.WITHIN if self.low <= ratio.low and ratio.high <= self.high else Standing.ACROSS


@dataclass(frozen=True, slots=True)
class SuiteModel:
    """One model of a suite. target: what the command line builds it from."""

    name: str
    target: str
    claims: tuple[Claim, ...] = ()

    def claim(self, device: str) -> Claim | None:
        """What is claimed for it on a device such as "cpu" or "cuda NVIDIA H200"; None where it is not on that list."""
        return next(
            (claim for claim in self.claims if claim.device == device.partition(" ")[0].partition(":")[0]), None
        )


@dataclass(frozen=True, slots=True)
class Suite:
    """Models under one name. about: what it is made after, one sentence."""

    name: str
    about: str
    models: tuple[SuiteModel, ...]


@dataclass(frozen=True, slots=True)
class SuiteRow:
    """What became of one model in one mode: a measurement, or the sentence on why there is none."""

    model: str
    mode: str
    claim: Claim | None
    benchmark: Benchmark | None = None
    failure: str = ""

    @property
    def variant(self) -> VariantTiming | None:
        """The variant whose ratio counts: the first one besides the baseline, where it ran."""
        if self.benchmark is None:
            return None
        others = (each for each in self.benchmark.variants if each.name != self.benchmark.baseline)
        return next((each for each in others if each.ratio is not None), None)

    @property
    def ratio(self) -> Ratio | None:
        return None if self.variant is None else self.variant.ratio

    @property
    def verdict(self) -> Verdict | None:
        if self.benchmark is None or self.variant is None:
            return None
        return Verdict.UNSTABLE if self.benchmark.unstable else self.variant.verdict


@dataclass(frozen=True)
class SuiteResult:
    """What a folder of a suite holds. missing: models in a mode that were asked for and not measured yet.

    settings: (name, value) of what every measurement was asked for. conditions: those of all of them.
    """

    suite: str
    about: str
    settings: tuple[tuple[str, str], ...]
    conditions: Conditions
    rows: tuple[SuiteRow, ...]
    missing: int = 0

    def of_mode(self, mode: str) -> tuple[SuiteRow, ...]:
        """The rows of one mode."""
        return tuple(row for row in self.rows if row.mode == mode)

    @property
    def modes(self) -> tuple[str, ...]:
        """The modes that there are rows of, in the order of the rows."""
        return tuple(dict.fromkeys(row.mode for row in self.rows))
