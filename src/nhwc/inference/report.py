"""What an engine is made of: every step with its module, algorithm and time, what fell back, memory, accuracy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from nhwc.inference.graph import Call
from nhwc.inference.numerics import Accuracy
from nhwc.inference.operations import Convolution, Linear
from nhwc.inference.placing import Item
from nhwc.inference.specialization import Specialization

_RUNS = 5


@dataclass(frozen=True)
class StepRow:
    """One item of the plan. algorithm: the chosen one, "torch" for a fallback. ms: the least of several runs.

    alternatives_ms: what was timed when the engine was built, by algorithm. operations: additions and multiplications
    of the definition, 0 where they are not counted. shape: of the result, None where it changes from call to call.
    """

    path: str
    source: str
    operation: str
    algorithm: str
    ms: float
    shape: tuple[int, ...] | None
    operations: int = 0
    alternatives_ms: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_fallback(self) -> bool:
        return self.algorithm == "torch"


@dataclass(frozen=True)
class EngineReport:
    """rows: in the order in which they run. arena_bytes: what a call holds besides its outputs; least_bytes: what lives
    at the fullest moment. scratch_bytes: working memory of the steps. threads: how many it was measured with.
    """

    rows: tuple[StepRow, ...]
    threads: int
    arena_bytes: int
    least_bytes: int
    scratch_bytes: int
    accuracy: Accuracy | None

    @property
    def fallbacks(self) -> tuple[StepRow, ...]:
        """What torch runs."""
        return tuple(row for row in self.rows if row.is_fallback)

    @property
    def ms(self) -> float:
        return sum(row.ms for row in self.rows)

    @property
    def fallback_ms(self) -> float:
        return sum(row.ms for row in self.fallbacks)


def report_of(of: Specialization, threads: int, accuracy: Accuracy | None) -> EngineReport:
    """Measure every item on the example that the engine was built with."""
    ready, planned = of.ready(threads), of.plans[threads]
    least: dict[Item, float] = {}

    def clock(item: Item, seconds: float) -> None:
        least[item] = min(least.get(item, math.inf), seconds)

    with torch.no_grad():
        for _ in range(_RUNS):
            ready(of.example, clock)
    rows = []
    for item in planned.placement.items:
        choice = planned.choices.get(item)
        rows.append(
            StepRow(
                item.node.path,
                item.node.source,
                item.work.name if isinstance(item.work, Call) else type(item.work).__name__,
                "torch" if choice is None else choice.label,
                1000 * least[item],
                item.node.output.shape if item.output is None else item.output.shape,
                _operations(item),
                {} if choice is None else choice.times_ms,
            )
        )
    return EngineReport(tuple(rows), threads, planned.arena_bytes, planned.least_bytes, ready.scratch_bytes, accuracy)


def _operations(item: Item) -> int:
    if item.output is None or not isinstance(item.work, Convolution | Linear):
        return 0
    weight = item.work.weight
    if isinstance(item.work, Convolution) and item.work.transposed:
        return 2 * math.prod(item.inputs[0].shape) * weight[0].numel()
    return 2 * math.prod(item.output.shape) * weight[0].numel()
