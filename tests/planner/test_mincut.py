"""The minimum cut against every labelling, on random problems of up to 14 nodes."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nhwc.planner.mincut import solve
from nhwc.planner.problem import FORBIDDEN, Problem, Tensor

COSTS = st.integers(0, 20).map(float)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    count = draw(st.integers(1, 14))
    nodes = st.integers(0, count - 1)
    never = st.sampled_from([(0.0, FORBIDDEN), (FORBIDDEN, 0.0)])
    costs = st.one_of(st.tuples(COSTS, COSTS), st.tuples(COSTS, COSTS), never)
    tensors = st.builds(
        Tensor, nodes, st.lists(nodes, min_size=1, max_size=4, unique=True).map(tuple), st.tuples(COSTS, COSTS)
    )
    return Problem(
        tuple(draw(st.lists(costs, min_size=count, max_size=count))),
        tuple(draw(st.lists(tensors, max_size=20))),
        tuple(draw(st.lists(st.tuples(nodes, nodes), max_size=3))),
    )


def least(problem: Problem) -> float:
    return min(problem.cost(labels) for labels in itertools.product((0, 1), repeat=len(problem.nodes)))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(problems())
def test_no_labelling_costs_less(problem: Problem) -> None:
    found, best = problem.cost(solve(problem)), least(problem)
    assert found == best or math.isclose(found, best, rel_tol=1e-6)


def test_one_conversion_serves_all_consumers() -> None:
    """Three consumers gain 1 each: worth one conversion of 2, not three of them."""
    consumers = ((1.0, 0.0),) * 3
    problem = Problem(((0.0, FORBIDDEN), *consumers), (Tensor(0, (1, 2, 3), (2.0, 2.0)),))
    assert solve(problem) == (0, 1, 1, 1)
    single = Problem(problem.nodes, tuple(Tensor(0, (each,), (2.0, 2.0)) for each in (1, 2, 3)))
    assert solve(single) == (0, 0, 0, 0)


def test_each_direction_has_its_cost() -> None:
    nodes = ((0.0, FORBIDDEN), (1.0, 0.0))
    assert solve(Problem(nodes, (Tensor(0, (1,), (9.0, 0.5)),))) == (0, 1)
    assert solve(Problem(nodes, (Tensor(0, (1,), (0.5, 9.0)),))) == (0, 0)


def test_tied_nodes_share_a_label_by_the_sum_of_their_costs() -> None:
    problem = Problem(((1.0, 0.0), (0.0, 3.0), (0.0, 1.0)), ties=((0, 1),))
    assert solve(problem) == (0, 0, 0)
    assert problem.cost((1, 0, 0)) == FORBIDDEN


def test_costs_far_apart_are_not_rounded_together() -> None:
    assert solve(Problem(((1000.0, 999.999), (0.001, 0.0), (0.0, 500.0)))) == (1, 1, 0)


@pytest.mark.parametrize("problem", [Problem(()), Problem(((0.0, 0.0),))])
def test_nothing_to_decide(problem: Problem) -> None:
    assert problem.cost(solve(problem)) == 0.0
