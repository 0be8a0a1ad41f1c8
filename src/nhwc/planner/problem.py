"""A labelling problem: nodes that take one of two labels each, and tensors that cost a conversion between labels.

Label 0 is contiguous, label 1 channels last. Costs are milliseconds, 0 or more; infinity forbids a label.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

FORBIDDEN = inf


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor in its producer's label. One conversion serves all consumers with the other label.

    producer, consumers: numbers of nodes. costs: of the conversion to label 0, and to label 1.
    """

    producer: int
    consumers: tuple[int, ...]
    costs: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Problem:
    """nodes: cost of each node with label 0, and with label 1. ties: pairs of nodes that share a label."""

    nodes: tuple[tuple[float, float], ...]
    tensors: tuple[Tensor, ...] = ()
    ties: tuple[tuple[int, int], ...] = ()

    def cost(self, labels: Sequence[int]) -> float:
        """Milliseconds of everything under ``labels``, one for each node; infinite where they are not allowed.

        >>> Problem(((1.0, 2.0), (5.0, 3.0)), (Tensor(0, (1,), (0.5, 0.25)),)).cost([0, 1])
        4.25
        """
        if any(labels[one] != labels[other] for one, other in self.ties):
            return FORBIDDEN
        total = sum(costs[label] for costs, label in zip(self.nodes, labels, strict=True))
        return total + sum(self.conversion(tensor, labels) for tensor in self.tensors)

    @staticmethod
    def conversion(tensor: Tensor, labels: Sequence[int]) -> float:
        """Milliseconds of the one conversion of a tensor under ``labels``, 0 where none is needed."""
        other = 1 - labels[tensor.producer]
        return tensor.costs[other] if any(labels[each] == other for each in tensor.consumers) else 0.0
