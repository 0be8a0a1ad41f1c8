"""The frozen data of an examination: facts about a machine, each judged, with a line on what to do.

Units are in the names: ``_s`` seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from nhwc.model import Environment
from nhwc.timing import Ratio


class State(StrEnum):
    """What a fact means for the speed of a memory format; wrong: it costs much, or makes a measurement worthless."""

    FINE = "fine"
    BETTER = "could be better"
    WRONG = "wrong"
    UNKNOWN = "not known"


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that decides layout performance.

    subject: the group it belongs to ("threads"). advice: one line on what to do, empty where nothing is to be done.
    source: address of a page that says so, for what is known to be bad.
    """

    subject: str
    name: str
    value: str
    state: State
    advice: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class AllocatorGain:
    """A step with large outputs, in processes with one allocator and with another, in turn.

    plain, other: what they are called. setting: the environment that makes the other, "" where the process has it.
    ratio: time under ``plain`` over time under ``other``, so that above 1 the other is faster; None without samples.
    plain_ms, other_ms: milliseconds per step, one sample a round. plain_faults,
    other_faults: minor page faults per step, medians.
    failure: why it was not measured, one sentence.
    """

    plain: str = ""
    other: str = ""
    setting: str = ""
    ratio: Ratio | None = None
    plain_ms: tuple[float, ...] = ()
    other_ms: tuple[float, ...] = ()
    plain_faults: float = 0.0
    other_faults: float = 0.0
    failure: str = ""


@dataclass(frozen=True)
class Health:
    """All facts about a machine, in the order of their subjects. seconds: wall time of the examination."""

    environment: Environment
    facts: tuple[Fact, ...]
    gain: AllocatorGain
    seconds: float

    def of_state(self, state: State) -> tuple[Fact, ...]:
        """The facts of one state."""
        return tuple(fact for fact in self.facts if fact.state == state)

    def subjects(self) -> Iterator[tuple[str, tuple[Fact, ...]]]:
        """Subjects with their facts, in order."""
        for subject in dict.fromkeys(fact.subject for fact in self.facts):
            yield subject, tuple(fact for fact in self.facts if fact.subject == subject)
