"""From measured costs to placements, moves and predicted times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nhwc.model import Call
from nhwc.plan import AFTER, BEFORE, FORMATS, FormatTimes, Move, Placement, Predicted
from nhwc.planner.flow import Flow, Value
from nhwc.planner.graph import INPUTS, Graph, graph
from nhwc.planner.mincut import solve


@dataclass(frozen=True, slots=True)
class Cost:
    """Milliseconds in contiguous and in channels last; estimated: whether any of it was not measured."""

    ms: tuple[float, float]
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class Solution:
    """What a plan says, without whom it is for."""

    placements: tuple[Placement, ...]
    moves: tuple[Move, ...]
    predicted: Predicted


def plan_for(
    flow: Flow,
    values: Sequence[Value],
    costs: Mapping[str, Cost],
    conversions: Sequence[Cost],
    given: Sequence[int],
) -> Solution:
    """The cheapest formats for the modules of ``flow``, exact for these costs.

    values: those that lie in the module's format, from ``flow.labelled``. conversions, given: one for each value, as
    ``graph.graph`` has them. A module whose own two costs are infinite, or that no format suits, has no solution:
    there is always one, since everything ran in contiguous.
    """
    times = {path: cost.ms for path, cost in costs.items()}
    found = graph(flow, values, times, [cost.ms for cost in conversions], given)
    labels = solve(found.problem)
    plain = [found.problem.cost(found.plain(label)) for label in (0, 1)]
    predicted = Predicted(plain[0], plain[1], found.problem.cost(labels))
    placements = _placements(flow, values, costs, found, labels)
    return Solution(placements, tuple(_moves(found, labels)), predicted)


def _placements(
    flow: Flow, values: Sequence[Value], costs: Mapping[str, Cost], found: Graph, labels: Sequence[int]
) -> tuple[Placement, ...]:
    touched = {path for value in values for path in (value.producer, *value.consumers)}
    placements = []
    for path, calls in flow.modules.items():
        cost = costs[path]
        if path in flow.outside or (path not in touched and cost.ms[0] == cost.ms[1]):
            continue
        label = labels[found.running[path]]
        kind = next((call.module_type for call in calls if call.module_type), "")
        times = FormatTimes(*cost.ms)
        deciding = sum(_has_format(call) for call in calls)
        placements.append(Placement(path, kind, FORMATS[label], deciding, times, cost.estimated, _why(cost, label)))
    return tuple(placements)


def _has_format(call: Call) -> bool:
    return not call.view and any(len(meta.shape) in (4, 5) for meta in (*call.inputs, *call.outputs))


def _why(cost: Cost, label: int) -> str:
    here, other = cost.ms[label], cost.ms[1 - label]
    name = FORMATS[label].replace("_", " ")
    if other == float("inf"):
        return f"it does not run in {FORMATS[1 - label].replace('_', ' ')}"
    measured = "estimated" if cost.estimated else "measured"
    difference = f"{abs(here - other):.3f}"
    if not float(difference):
        return f"as fast in both formats; its neighbours are in {name}"
    if here < other:
        return f"{measured} {difference} ms faster in {name}"
    return f"{measured} {difference} ms slower in {name}, which is less than converting for it"


def _moves(found: Graph, labels: Sequence[int]) -> list[Move]:
    moves = []
    tensors = iter(found.problem.tensors)
    for number, value in enumerate(found.values):
        leaving = found.leaving[value.producer]
        after = next(tensors)
        if labels[after.producer] != labels[leaving]:
            where = (BEFORE, "") if value.producer is INPUTS else (AFTER, value.producer)
            ms = found.problem.conversion(after, labels)
            moves.append(Move(*where, FORMATS[labels[leaving]], value.meta.nbytes, ms, 1, number))
        free = [path for path in value.consumers if found.is_free(path, value)]
        if not free:
            continue
        ms, calls = found.problem.conversion(next(tensors), labels), 1
        for path in free:
            label = labels[found.running[path]]
            if label != labels[leaving]:
                moves.append(Move(BEFORE, path, FORMATS[label], value.meta.nbytes, ms, calls, number))
                ms, calls = 0.0, 0
    return moves
