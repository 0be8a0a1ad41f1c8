"""The exact labelling of a problem, as a minimum cut between label 0 (the source's side) and label 1 (the sink's).

A node's cost is an edge to a terminal. A tensor with several consumers has a node of its own for each direction: that
for label 1 hangs on the producer by the conversion's cost and on every consumer without bound, so that it is cut off,
and paid for, once as soon as one consumer is on the other side (the construction for costs of a group of nodes in
Kohli, Ladicky, Torr, "Robust Higher Order Potentials for Enforcing Label Consistency", 2009).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from nhwc.planner.problem import Problem

#: scipy's flows are int32: all finite costs together are scaled to this, and what is forbidden costs more.
_ALL, _NEVER = 2**29, 2**30

_Edge = tuple[int, int, float]


def solve(problem: Problem) -> tuple[int, ...]:
    """The label of every node, at the least cost to within one part in 2**29 for each term.

    Where both labels cost the same, a node has label 1. A problem without an allowed labelling has one whose
    ``Problem.cost`` is infinite.

    >>> solve(Problem(((1.0, 2.0), (5.0, 3.0))))
    (0, 1)
    """
    if not problem.nodes:
        return ()
    group = _groups(len(problem.nodes), problem.ties)
    edges, count = _edges(problem, group)
    on_source_side = _source_side(edges, count)
    return tuple(0 if on_source_side[group[node]] else 1 for node in range(len(problem.nodes)))


def _groups(count: int, ties: Sequence[tuple[int, int]]) -> list[int]:
    """For every node the number of its group of tied nodes, from 2: 0 and 1 are the terminals."""
    parent = list(range(count))

    def root(node: int) -> int:
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for one, other in ties:
        parent[root(one)] = root(other)
    numbers: dict[int, int] = {}
    return [numbers.setdefault(root(node), 2 + len(numbers)) for node in range(count)]


def _edges(problem: Problem, group: Sequence[int]) -> tuple[list[_Edge], int]:
    """Edges with their costs, and how many nodes there are with the terminals."""
    edges: list[_Edge] = []
    sums = [[0.0, 0.0] for _ in range(max(group) + 1)]
    for node, costs in enumerate(problem.nodes):
        for label in (0, 1):
            sums[group[node]][label] += costs[label]
    for number, (in_0, in_1) in enumerate(sums[2:], start=2):
        common = min(in_0, in_1) if isfinite(min(in_0, in_1)) else 0.0
        edges += [(0, number, in_1 - common), (number, 1, in_0 - common)]
    count = len(sums)
    for tensor in problem.tensors:
        producer = group[tensor.producer]
        consumers = sorted({group[each] for each in tensor.consumers} - {producer})
        to_0, to_1 = tensor.costs
        if len(consumers) == 1:
            edges += [(producer, consumers[0], to_1), (consumers[0], producer, to_0)]
        elif consumers:
            edges += [(producer, count, to_1), (count + 1, producer, to_0)]
            for each in consumers:
                edges += [(count, each, float("inf")), (each, count + 1, float("inf"))]
            count += 2
    return [edge for edge in edges if edge[2] > 0], count


def _source_side(edges: Sequence[_Edge], count: int) -> list[bool]:
    import numpy
    from scipy import sparse

    if not edges:
        return [False] * count
    total = sum(cost for _, _, cost in edges if isfinite(cost))
    scale = _ALL / total if total else 1.0
    starts, ends = [edge[0] for edge in edges], [edge[1] for edge in edges]
    costs = numpy.array([cost if isfinite(cost) else 0.0 for _, _, cost in edges])
    never = numpy.array([not isfinite(cost) for _, _, cost in edges])
    capacities = numpy.where(never, _NEVER, numpy.rint(costs * scale))
    graph = sparse.csr_matrix((capacities, (starts, ends)), shape=(count, count))
    graph.data = numpy.minimum(graph.data, _NEVER)  # parallel edges were added up
    graph = graph.astype(numpy.int32)
    flow = sparse.csgraph.maximum_flow(graph, 0, 1).flow
    left = graph - flow
    left.eliminate_zeros()
    reached = sparse.csgraph.breadth_first_order(left, 0, return_predecessors=False)
    side = numpy.zeros(count, dtype=bool)
    side[reached] = True
    return [bool(each) for each in side]
