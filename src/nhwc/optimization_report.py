"""The frozen data of an optimization: what was tried on a model, what that gave, what was chosen, and why.

Ratios say how many times faster than the *plain* one a candidate is: the better of contiguous and channels last, each
applied to the whole model. Units are in the names: ``_s`` seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from nhwc.plan import Plan
from nhwc.proof import Outcome, Verification
from nhwc.timing import Benchmark, Ratio, Verdict

#: The formats that every candidate has to beat, each applied to the whole model.
PLAIN = ("contiguous", "channels_last")


class Form(StrEnum):
    """What ``nhwc.optimize`` returned: the model as it came, the same model changed in place, or another object."""

    UNCHANGED = "the model unchanged"
    IN_PLACE = "the model, changed in place"
    ENGINE = "an engine in the model's place"
    COMPILED = "the model compiled"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One arrangement that was tried.

    spec: the parts it is made of, as variants are written. median_ms: of a step; None where it did not run.
    ratio: against the better plain format, None for that one itself and for what did not run. verdict: on the ratio.
    predicted: the ratio that a plan promised, None where none did. outcome: of its verification, None where it was not
    verified, because it could not be chosen. reason: one sentence on why it was not chosen; empty for the chosen one.
    """

    name: str
    spec: str
    median_ms: float | None = None
    ratio: Ratio | None = None
    verdict: Verdict | None = None
    predicted: float | None = None
    outcome: Outcome | None = None
    reason: str = ""


@dataclass(frozen=True)
class OtherShape:
    """What was measured with arguments of shapes other than the example's.

    shapes: of the tensors among them, in order. plain, candidates, benchmark, plan: as for the example.
    """

    shapes: tuple[tuple[int, ...], ...]
    plain: str
    candidates: tuple[Candidate, ...]
    benchmark: Benchmark
    plan: Plan | None = None


@dataclass(frozen=True)
class Optimization:
    """One model for inputs of certain shapes, arranged by measurement.

    chosen: the name of a candidate; "" where nothing was proved better than the model as it came. reason: one sentence.
    plain: the better of the plain formats. training: whether whole training steps were measured. confidence: of each
    ratio's interval. benchmark: all samples. verification: of what was verified, None where nothing had to be.
    plan: the plan of "planned", None where there was none. notes: sentences on what else a reader should know.
    amp: the dtype of autocast that all of it ran under, "" for none. others: what was measured with other shapes.
    """

    target: str
    training: bool
    chosen: str
    form: Form
    reason: str
    plain: str
    candidates: tuple[Candidate, ...]
    confidence: float
    benchmark: Benchmark
    verification: Verification | None = None
    plan: Plan | None = None
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    amp: str = ""
    others: tuple[OtherShape, ...] = ()

    def candidate(self, name: str) -> Candidate:
        """The candidate of that name; KeyError where there is none."""
        for each in self.candidates:
            if each.name == name:
                return each
        raise KeyError(name)

    @property
    def gain(self) -> Ratio | None:
        """The chosen one against the better plain format; None where that one or nothing was chosen."""
        return self.candidate(self.chosen).ratio if self.chosen else None
