"""From costs to placements and moves: what is cheapest, where a hook can stand, and sums that are sums."""

import itertools
from dataclasses import replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planner.traces import Steps, tensor

from nhwc.model import Trace
from nhwc.plan import Move
from nhwc.planner import Cost, Flow, Solution, Value, flow, labelled, plan_for
from nhwc.planner.graph import graph

NBYTES = tensor(0).nbytes


def both(build: Steps, *inputs: int) -> tuple[Flow, tuple[Value, ...]]:
    """The flow of some calls, and their labelled values: the same calls in channels last."""
    there = Steps("channels_last")
    for call in build.calls:
        reads = tuple(meta.storage for meta in call.inputs)
        there.call(call.module, reads, call.outputs[0].storage, view=call.view, mutates=call.mutates)
    found = flow(build.trace(*inputs))
    return found, labelled(found, flow(there.trace(*inputs)))


def solved(build: Steps, costs: dict[str, tuple[float, float]], convert: float = 1.0, given: int = 0) -> Solution:
    found, values = both(build, 1)
    return plan_for(
        found,
        values,
        {path: Cost(ms) for path, ms in costs.items()},
        [Cost((convert, convert))] * len(values),
        [given] * len(values),
    )


def formats(solution: Solution) -> list[str]:
    return [placement.format for placement in solution.placements]


CHAIN = Steps().call("a", (1,), 2).call("b", (2,), 3).call("c", (3,), 4)


def test_everything_in_the_format_that_is_faster_with_the_input_moved_once() -> None:
    found = solved(CHAIN, {"a": (9.0, 1.0), "b": (1.0, 1.5), "c": (9.0, 1.0)})
    assert formats(found) == ["channels_last"] * 3
    assert found.moves == (Move("before", "", "channels_last", NBYTES, 1.0, 1, 0),)
    assert (found.predicted.contiguous, found.predicted.channels_last, found.predicted.planned) == (19.0, 4.5, 4.5)
    assert "slower" in found.placements[1].why


def test_an_input_that_is_given_in_channels_last_is_not_moved() -> None:
    found = solved(CHAIN, {"a": (9.0, 1.0), "b": (1.0, 1.5), "c": (9.0, 1.0)}, given=1)
    assert found.moves == ()
    assert found.predicted.contiguous == 20.0


def test_a_module_that_gains_more_than_its_conversions_has_its_own_format() -> None:
    found = solved(CHAIN, {"a": (1.0, 2.0), "b": (9.0, 1.0), "c": (1.0, 9.0)})
    assert formats(found) == ["contiguous", "channels_last", "contiguous"]
    assert [(move.where, move.module, move.format) for move in found.moves] in (
        [("before", "b", "channels_last"), ("before", "c", "contiguous")],
        [("after", "a", "channels_last"), ("after", "b", "contiguous")],
        [("before", "b", "channels_last"), ("after", "b", "contiguous")],
        [("after", "a", "channels_last"), ("before", "c", "contiguous")],
    )
    assert found.predicted.planned == 5.0 == sum(move.ms for move in found.moves) + 3.0


def test_a_module_that_does_not_run_in_a_format_is_not_put_there() -> None:
    found = solved(CHAIN, {"a": (9.0, 1.0), "b": (1.0, inf), "c": (9.0, 1.0)})
    assert formats(found) == ["channels_last", "contiguous", "channels_last"]
    assert found.predicted.channels_last == inf
    assert "does not run" in found.placements[1].why


def test_one_conversion_serves_all_readers() -> None:
    steps = Steps().call("a", (1,), 2)
    for place in range(3):
        steps.call(f"r{place}", (2,), 3 + place)
    found = solved(steps, {"a": (0.0, 9.0), **{f"r{place}": (0.5, 0.0) for place in range(3)}})
    assert formats(found) == ["contiguous", *["channels_last"] * 3]
    assert sum(move.ms for move in found.moves) == 1.0
    assert sum(move.calls for move in found.moves) == 1


def test_no_move_stands_before_a_module_that_writes_to_the_tensor() -> None:
    steps = Steps().call("a", (1,), 2).call("relu", (2,), 2, mutates=(0,)).call("c", (2,), 3)
    found = solved(steps, {"a": (0.0, 9.0), "relu": (9.0, 0.0), "c": (0.0, 9.0)})
    assert ("before", "relu") not in {(move.where, move.module) for move in found.moves}
    assert ("after", "a") in {(move.where, move.module) for move in found.moves}


def test_the_operators_of_a_module_with_children_take_tensors_as_they_come() -> None:
    """The sum in the block reads what both children leave: they leave it in one format, by a move after one."""
    steps = Steps().call("block.a", (1,), 2).call("block.b", (1,), 3).call("block", (2, 3), 4)
    found = solved(steps, {"block.a": (0.0, 9.0), "block.b": (9.0, 0.0), "block": (3.0, 0.0)})
    assert formats(found) == ["contiguous", "channels_last", "channels_last"]
    assert {(move.where, move.module, move.format) for move in found.moves} == {
        ("before", "block.b", "channels_last"),
        ("after", "block.a", "channels_last"),
    }


def test_what_a_module_writes_to_is_moved_for_all_its_readers() -> None:
    """A conversion before relu alone would cost 1: it would write to a copy that b does not see."""
    steps = Steps().call("a", (1,), 2).call("b", (2,), 3).call("relu", (2,), 2, mutates=(0,))
    found = solved(steps, {"a": (0.0, 9.0), "b": (0.0, 9.0), "relu": (9.0, 0.0)})
    assert [(move.where, move.module, move.format, move.ms) for move in found.moves] == [
        ("after", "a", "channels_last", 1.0),
        ("before", "b", "contiguous", 1.0),
    ]
    assert found.predicted.planned == 2.0


def test_what_a_module_with_children_reads_is_moved_for_all_its_readers() -> None:
    """A conversion before the block's own operator would cost 1, but no hook stands there."""
    steps = Steps().call("block.a", (1,), 2).call("block.b", (2,), 3).call("block", (2,), 4)
    found = solved(steps, {"block.a": (0.0, 9.0), "block.b": (0.0, 9.0), "block": (9.0, 0.0)})
    assert [(move.where, move.module, move.format, move.ms) for move in found.moves] == [
        ("after", "block.a", "channels_last", 1.0),
        ("before", "block.b", "contiguous", 1.0),
    ]
    assert found.predicted.planned == 2.0


def test_nothing_is_moved_between_the_operators_of_modules_with_children() -> None:
    steps = Steps().call("net.block.a", (1,), 2).call("net.block", (2,), 3).call("net", (3,), 4)
    found = solved(steps, {"net.block.a": (0.0, 0.0), "net.block": (0.0, 9.0), "net": (9.0, 0.0)})
    assert found.predicted.planned == 9.0
    assert found.moves == ()


def converted(steps: Steps, costs: dict[str, tuple[float, float]]) -> Solution:
    """Solved with conversions of the input at (7, 8), and of all other tensors at (50, 2)."""
    found, values = both(steps, 1)
    conversions = [Cost((7.0, 8.0) if value.producer is None else (50.0, 2.0)) for value in values]
    return plan_for(found, values, {path: Cost(ms) for path, ms in costs.items()}, conversions, [0] * len(values))


def test_a_conversion_before_a_module_costs_what_that_of_its_tensor_does() -> None:
    steps = Steps().call("a", (1,), 2).call("b", (2,), 3).call("c", (2,), 4)
    found = converted(steps, {"a": (0.0, 99.0), "b": (0.0, 99.0), "c": (99.0, 0.0)})
    assert [(move.where, move.module, move.ms) for move in found.moves] == [("before", "c", 2.0)]
    assert found.predicted.planned == 2.0


def test_a_conversion_behind_a_module_costs_what_that_of_its_tensor_does() -> None:
    found = converted(Steps().call("net.a", (1,), 2).call("net", (2,), 3), {"net.a": (0.0, 99.0), "net": (99.0, 0.0)})
    assert [(move.where, move.module, move.ms) for move in found.moves] == [("after", "net.a", 2.0)]
    assert found.predicted.planned == 2.0


def test_modules_without_a_format_are_not_placed() -> None:
    def trace(name: str) -> Trace:
        steps = Steps(name).call("a", (1,), 2, answers="contiguous")
        steps.name = "contiguous"
        steps.call("flat", (2,), 3)
        steps.name = name
        return steps.trace(1)

    here = flow(trace("contiguous"))
    values = labelled(here, flow(trace("channels_last")))
    costs = {"a": Cost((2.0, 1.0)), "flat": Cost((5.0, 5.0), estimated=True)}
    found = plan_for(here, values, costs, [Cost((9.0, 9.0))], [0])
    assert [placement.module for placement in found.placements] == ["a"]
    assert found.predicted.planned == 7.0


def test_modules_with_times_or_neighbours_of_a_format_are_placed() -> None:
    found = solved(CHAIN, {"a": (9.0, 1.0), "b": (2.0, 2.0), "c": (9.0, 1.0)})
    assert [placement.module for placement in found.placements] == ["a", "b", "c"]
    alone = Flow((), {"a": tuple(CHAIN.calls[:1])})
    (placement,) = plan_for(alone, (), {"a": Cost((2.0, 1.0))}, [], []).placements
    assert placement.format == "channels_last"


def test_a_placement_names_its_type_and_counts_the_calls_that_the_format_decides_about() -> None:
    call, flat = CHAIN.calls[0], tensor(9, "contiguous", (2, 8))
    calls = (
        replace(call, module_type=""),
        replace(call, view=True),
        replace(call, inputs=(flat,)),
        replace(call, inputs=(flat,), outputs=(flat,)),
    )
    (placement,) = plan_for(Flow((), {"a": calls}), (), {"a": Cost((2.0, 1.0))}, [], []).placements
    assert (placement.module_type, placement.calls) == ("Made", 2)


def test_what_was_estimated_says_so() -> None:
    found, values = both(Steps().call("a", (1,), 2), 1)
    (placement,) = plan_for(found, values, {"a": Cost((2.0, 1.0), estimated=True)}, [Cost((0.0, 0.0))], [0]).placements
    assert placement.estimated
    assert placement.why == "estimated 1.000 ms faster in channels last"


def test_a_loss_takes_what_the_model_gives_and_is_no_part_of_the_plan() -> None:
    there = Steps("channels_last").call("a", (1,), 2).call("Loss", (2,), 3).call("Loss", (3,), 4)
    here = flow(Steps().call("a", (1,), 2).call("Loss", (2,), 3).call("Loss", (3,), 4).trace(1), {"", "a"})
    values = labelled(here, flow(there.trace(1), {"", "a"}))
    costs = {"a": Cost((9.0, 1.0)), "Loss": Cost((1.0, 3.0))}
    found = plan_for(here, values, costs, [Cost((0.1, 0.1))] * len(values), [0] * len(values))
    assert [each.module for each in found.placements] == ["a"]
    assert [(each.where, each.module) for each in found.moves] == [("before", ""), ("after", "a")]
    assert found.predicted.planned == pytest.approx(2.2)


def test_a_difference_that_rounds_to_nothing_is_none() -> None:
    found, values = both(Steps().call("a", (1,), 2), 1)
    for ms in ((2.0, 2.0001), (2.0001, 2.0)):
        (placement,) = plan_for(found, values, {"a": Cost(ms)}, [Cost((1.0, 1.0))], [0]).placements
        assert placement.why == "as fast in both formats; its neighbours are in contiguous"


@st.composite
def networks(draw: st.DrawFn) -> tuple[Steps, dict[str, tuple[float, float]], float, int]:
    """Up to 5 operators that read earlier tensors, some of one module, some in place, some of a container."""
    steps = Steps()
    ms = st.integers(0, 9).map(float)
    memories = [1]
    for index in range(draw(st.integers(1, 5))):
        reads = tuple(draw(st.lists(st.sampled_from(memories), min_size=1, max_size=3, unique=True)))
        module = draw(st.sampled_from([f"net.m{index}", f"net.m{index // 2}", "net"]))
        in_place = draw(st.integers(0, 4)) == 0
        steps.call(module, reads, reads[0] if in_place else index + 2, mutates=(0,) if in_place else ())
        memories.append(steps.calls[-1].outputs[0].storage)
    costs = {call.module: draw(st.tuples(ms, ms)) for call in steps.calls}
    return steps, costs, draw(st.integers(0, 5)) / 2, draw(st.integers(0, 1))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(networks())
def test_no_other_plan_is_predicted_to_be_faster_and_its_parts_add_up(
    network: tuple[Steps, dict[str, tuple[float, float]], float, int],
) -> None:
    steps, costs, convert, given_label = network
    found, values = both(steps, 1)
    problem = graph(found, values, costs, [(convert, convert)] * len(values), [given_label] * len(values)).problem
    solution = solved(steps, costs, convert, given_label)
    best = min(problem.cost([0, 1, *labels]) for labels in itertools.product((0, 1), repeat=len(problem.nodes) - 2))
    assert solution.predicted.planned == pytest.approx(best)
    placed = {placement.module: placement.ms.of(placement.format) for placement in solution.placements}
    others = sum(ms[0] for path, ms in costs.items() if path not in placed)
    spent = sum(placed.values()) + others + sum(move.ms for move in solution.moves)
    assert solution.predicted.planned == pytest.approx(spent)
