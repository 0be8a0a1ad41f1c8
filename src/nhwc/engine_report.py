"""The frozen data of an engine's report: what every step runs and takes, and what that is of the machine's limits.

Units are in the names: ``_ms`` milliseconds, ``_s`` seconds, ``_bytes`` bytes. A flop is a multiplication or an
addition of the operation as it is defined, so that an algorithm with fewer, such as Winograd's, can pass the peak.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from nhwc.timing import Benchmark, Conditions

Shape = tuple[int, ...]


class Bound(StrEnum):
    """What limits a step on this machine, by its flops and bytes: arithmetic, or memory."""

    ARITHMETIC = "arithmetic"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Alternative:
    """One algorithm that was timed when the engine was built, alone and on warm memory."""

    algorithm: str
    ms: float


@dataclass(frozen=True, slots=True)
class CopySpeed:
    """How fast torch copies so many bytes here: those read and those written, in bytes per second."""

    size_bytes: int
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Limits:
    """What this machine does on ``threads`` threads, measured. flop_per_s: in registers. copies: by size, ascending."""

    threads: int
    flop_per_s: float
    copies: tuple[CopySpeed, ...]

    def copy_bytes_per_s(self, size_bytes: int) -> float:
        """The bandwidth of a copy of at least that size, of the largest that was measured beyond it."""
        enough = [each.bytes_per_s for each in self.copies if each.size_bytes >= size_bytes]
        return enough[0] if enough else self.copies[-1].bytes_per_s


@dataclass(frozen=True, slots=True)
class StepTiming:
    """One step of the plan. module: as named_modules has it. source: the line of the user's code.

    algorithm: with its choices; "torch" where torch runs it. inputs, output: shapes. flop: 0 where nothing is computed
    or torch alone knows. moved_bytes: inputs, weights and output, each once. ms: the median of its times within whole
    calls. alternatives: what else was timed, the chosen one among them, fastest first.
    """

    module: str
    operation: str
    algorithm: str
    inputs: tuple[Shape, ...]
    output: Shape | None
    flop: int
    moved_bytes: int
    ms: float
    alternatives: tuple[Alternative, ...] = ()
    source: str = ""

    @property
    def is_fallback(self) -> bool:
        """Whether torch runs it."""
        return self.algorithm == "torch"

    @property
    def flop_per_s(self) -> float:
        return 1000.0 * self.flop / self.ms if self.ms > 0 else 0.0

    @property
    def bytes_per_s(self) -> float:
        return 1000.0 * self.moved_bytes / self.ms if self.ms > 0 else 0.0

    def bound(self, limits: Limits) -> Bound:
        """Which limit would make it take longer."""
        arithmetic_s = self.flop / limits.flop_per_s
        memory_s = self.moved_bytes / limits.copy_bytes_per_s(self.moved_bytes)
        return Bound.ARITHMETIC if arithmetic_s >= memory_s else Bound.MEMORY

    def share(self, limits: Limits) -> float:
        """What it achieves of the limit that bounds it."""
        if self.bound(limits) is Bound.ARITHMETIC:
            return self.flop_per_s / limits.flop_per_s
        return self.bytes_per_s / limits.copy_bytes_per_s(self.moved_bytes)


#: The engine's error may be this many times eager's.
MOST_TIMES = 4.0
#: Eager's error counts as at least this much: two units in the last place of float32.
FLOOR = 2.0**-22


@dataclass(frozen=True, slots=True)
class Accuracy:
    """error, eager_error: the largest over all outputs, relative to each output's greatest value, against the model in
    float64. switched_off: modules whose inexact algorithm was given up for it. reason: why it could not be told, or "".
    floor: what an error may be in any case, over MOST_TIMES: a few roundings, of narrow weights where they are read.
    """

    error: float
    eager_error: float
    switched_off: tuple[str, ...] = ()
    reason: str = ""
    floor: float = FLOOR

    @property
    def bound(self) -> float:
        """What the error may be."""
        return MOST_TIMES * max(self.eager_error, self.floor)

    @property
    def holds(self) -> bool:
        """Whether the engine keeps its bound; not where its error is no number."""
        return not self.reason and self.error <= self.bound


def worst(accuracies: Sequence[Accuracy]) -> Accuracy:
    """The one that is nearest to its bound or past it, or that could not be told, with all that was switched off."""
    found = max(accuracies, key=lambda each: (bool(each.reason), not each.holds, each.error / each.bound))
    switched_off = dict.fromkeys(path for each in accuracies for path in each.switched_off)
    return replace(found, switched_off=tuple(switched_off))


@dataclass(frozen=True)
class EngineReport:
    """One engine for inputs of certain shapes, measured on this machine.

    inputs: (shape, dtype) of the tensors. threads: that it ran on. exact: built without algorithms that change the
    rounding of single products. run_ms: the median of whole calls, without the clock of the steps.
    arena_bytes: of one call; least_arena_bytes: the most that lives at one moment. scratch_bytes: working memory of one
    call. weight_bytes: what steps read and no call changes. build_s: capturing, choosing and packing.
    accuracy: None where it was not measured. benchmark: the engine against the model in other formats, where that was
    asked for.
    """

    target: str
    inputs: tuple[tuple[Shape, str], ...]
    threads: int
    exact: bool
    steps: tuple[StepTiming, ...]
    run_ms: float
    arena_bytes: int
    least_arena_bytes: int
    scratch_bytes: int
    weight_bytes: int
    build_s: float
    limits: Limits
    instruction_set: str
    accuracy: Accuracy | None = None
    conditions: Conditions | None = None
    benchmark: Benchmark | None = None
    notes: tuple[str, ...] = ()

    @property
    def flop(self) -> int:
        return sum(each.flop for each in self.steps)

    @property
    def steps_ms(self) -> float:
        return sum(each.ms for each in self.steps)

    @property
    def fallbacks(self) -> tuple[StepTiming, ...]:
        """What torch runs, in order."""
        return tuple(each for each in self.steps if each.is_fallback)

    @property
    def fallback_ms(self) -> float:
        return sum(each.ms for each in self.fallbacks)
