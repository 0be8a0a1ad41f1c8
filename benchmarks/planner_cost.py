"""How long the exact labelling of a large graph takes.

    python benchmarks/planner_cost.py [OPERATORS]

A made-up network of residual blocks: every third tensor has three consumers, costs are random by a fixed seed.
"""

from __future__ import annotations

import random
import sys
import time

from nhwc.planner.mincut import solve
from nhwc.planner.problem import Problem, Tensor


def network(operators: int, seed: int = 0) -> Problem:
    """A chain in which every third tensor is also read by the third and by the fifth operator after it."""
    draw = random.Random(seed)
    nodes = tuple((draw.uniform(0.1, 5.0), draw.uniform(0.1, 5.0)) for _ in range(operators))
    tensors = []
    for at in range(operators - 1):
        consumers = (at + 1, at + 3, at + 5) if at % 3 == 0 else (at + 1,)
        costs = (draw.uniform(0.1, 2.0), draw.uniform(0.1, 2.0))
        tensors.append(Tensor(at, tuple(each for each in consumers if each < operators), costs))
    return Problem(nodes, tuple(tensors))


def main() -> None:
    operators = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    problem = network(operators)
    started = time.perf_counter()
    labels = solve(problem)
    taken_s = time.perf_counter() - started
    plain = min(problem.cost([label] * operators) for label in (0, 1))
    print(f"{operators} operators: {taken_s:.2f} s, {problem.cost(labels):.1f} ms against {plain:.1f} ms in one format")


if __name__ == "__main__":
    main()
