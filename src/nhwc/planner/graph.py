"""The labelling problem of a model: a node for every module, and for the side of it on which its outputs leave.

Calls between which no hook can stand share a label: those of one module, forward and backward. A tensor can change its
format after the module that made it, for all that read it, and before a module that reads it, for that one. Three
modules cannot have a hook between them and the tensor: one with children, whose own operators run amid them, one that
writes to the tensor, since others would not see what it writes to a copy, and one that is not the model's, as a loss.
They take the tensor as it left its producer, at their true cost in that format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nhwc.planner.flow import Flow, Value
from nhwc.planner.problem import FORBIDDEN, Problem, Tensor

#: The producer of the step's inputs.
INPUTS = None


@dataclass(frozen=True)
class Graph:
    """A problem, and what its nodes are. Nodes 0 and 1 have those labels: inputs of the step that are given so.

    running: module → the node of its own label. leaving: module → the node of its outputs' label; of None, that of the
    step's inputs once moved. The tensors of the problem are in the order of ``values``: each as it leaves its
    producer, and then, where there are any, in front of the readers that a move can stand before. fixed: modules that
    none can stand at.
    """

    problem: Problem
    values: tuple[Value, ...]
    running: Mapping[str, int]
    leaving: Mapping[str | None, int]
    fixed: frozenset[str]

    def is_free(self, path: str, value: Value) -> bool:
        """Whether ``value`` can be moved in front of the module ``path``."""
        return is_free(path, value, self.fixed)

    def plain(self, label: int) -> list[int]:
        """The labels of everything in one format; the step's inputs are given as they are and moved at once."""
        labels = [label] * len(self.problem.nodes)
        labels[0], labels[1] = 0, 1
        return labels


def is_free(path: str, value: Value, fixed: frozenset[str]) -> bool:
    """Whether ``value`` can be moved in front of the module ``path``."""
    return path not in fixed and path not in value.writers


def graph(
    flow: Flow,
    values: Sequence[Value],
    costs: Mapping[str, tuple[float, float]],
    conversions: Sequence[tuple[float, float]],
    given: Sequence[int],
) -> Graph:
    """The problem of a model.

    values: ``labelled`` ones. costs: module → milliseconds of its calls in contiguous, and in channels last.
    conversions: of each value, milliseconds to contiguous and to channels last, with its gradient's in training.
    given: the label in which the user gives each value that is an input; other values' entries are not read.
    """
    nodes = [(0.0, FORBIDDEN), (FORBIDDEN, 0.0)]  # what is given contiguous, and in channels last
    running: dict[str, int] = {}
    leaving: dict[str | None, int] = {INPUTS: 2}
    nodes.append((0.0, 0.0))
    fixed = flow.containers | flow.outside
    for path in flow.modules:
        running[path] = len(nodes)
        nodes.append(costs[path])
    for producer in dict.fromkeys(value.producer for value in values if value.producer is not INPUTS):
        if producer in fixed:
            leaving[producer] = running[producer]
        else:
            leaving[producer] = len(nodes)
            nodes.append((0.0, 0.0))
    tensors, ties = [], []
    for number, value in enumerate(values):
        source = given[number] if value.producer is INPUTS else running[value.producer]
        leaves = leaving[value.producer]
        tensors.append(Tensor(source, (leaves,), conversions[number]))
        free = tuple(running[path] for path in value.consumers if is_free(path, value, fixed))
        ties += [(leaves, running[path]) for path in value.consumers if not is_free(path, value, fixed)]
        if free:
            tensors.append(Tensor(leaves, free, conversions[number]))
    return Graph(Problem(tuple(nodes), tuple(tensors), tuple(ties)), tuple(values), running, leaving, fixed)
