"""Which module makes a tensor, and which ones read it."""

from dataclasses import replace

from planner.traces import Steps, tensor

from nhwc.model import Phase
from nhwc.planner import Value, flow, labelled


def told(values: tuple[Value, ...]) -> list[tuple[str | None, list[str], set[str]]]:
    return [(value.producer, value.consumers, value.writers) for value in values]


def test_a_chain_and_a_residual() -> None:
    steps = Steps().call("a", (1,), 2).call("b", (2,), 3).call("", (2, 3), 4)
    assert told(flow(steps.trace(1)).values) == [(None, ["a"], set()), ("a", ["b", ""], set()), ("b", [""], set())]


def test_a_view_carries_its_memorys_value_through_other_modules() -> None:
    steps = Steps().call("a", (1,), 2).call("view", (2,), 2, view=True).call("b", (2,), 3)
    assert told(flow(steps.trace(1)).values)[1] == ("a", ["view", "b"], set())


def test_what_is_written_in_place_is_the_writers_from_then_on() -> None:
    steps = Steps().call("a", (1,), 2).call("relu", (2,), 2, mutates=(0,)).call("b", (2,), 3)
    assert told(flow(steps.trace(1)).values)[1:] == [("a", ["relu"], {"relu"}), ("relu", ["b"], set())]


def test_the_tensors_inside_a_module_are_its_own_business() -> None:
    steps = Steps().call("a", (1,), 2).call("a", (2,), 3).call("b", (3,), 4)
    assert told(flow(steps.trace(1)).values) == [(None, ["a"], set()), ("a", ["b"], set())]


def test_backward_calls_belong_to_their_module_and_optimizers_to_none() -> None:
    steps = Steps().call("a", (1,), 2).call("a", (2, 1), 3, phase=Phase.BACKWARD)
    steps.call("a", (3,), 3, mutates=(0,), phase=Phase.OPTIMIZER)
    found = flow(steps.trace(1))
    assert [call.index for call in found.modules["a"]] == [0, 1]
    assert told(found.values) == [(None, ["a"], set())]


def test_a_backward_call_of_another_module_reads_nothing() -> None:
    steps = Steps().call("a", (1,), 2).call("b", (2,), 3).call("c", (2, 3), 4, phase=Phase.BACKWARD)
    assert told(flow(steps.trace(1)).values)[1:] == [("a", ["b"], set())]


def test_each_reader_once_however_often_it_reads() -> None:
    steps = Steps().call("a", (1,), 2).call("b", (2, 2), 3).call("b", (2, 3), 4)
    assert told(flow(steps.trace(1)).values)[1:] == [("a", ["b"], set())]


def test_only_the_operand_that_is_written_has_a_writer() -> None:
    steps = Steps().call("a", (1,), 2).call("b", (1,), 3).call("add", (2, 3), 2, mutates=(0,))
    assert told(flow(steps.trace(1)).values)[1:] == [("a", ["add"], {"add"}), ("b", ["add"], set())]


def test_tensors_of_other_ranks_are_no_values() -> None:
    flat = tensor(9, shape=(2, 8))
    steps = Steps().call("a", (1,), 2).call("b", (2,), 3)
    last = replace(steps.calls[-1], inputs=(*steps.calls[-1].inputs, flat), outputs=(flat,))
    reading = replace(last, module="c", inputs=(flat,), outputs=(tensor(4),))
    trace = replace(steps.trace(1), calls=(steps.calls[0], last, reading))
    trace = replace(trace, inputs=(*trace.inputs, tensor(9, shape=(2, 8))))
    assert told(flow(trace).values) == [(None, ["a"], set()), ("a", ["b"], set())]


def test_a_slice_that_is_written_stands_for_the_whole_memory() -> None:
    steps = Steps().call("a", (1,), 2).call("fill", (2,), 2, mutates=(0,)).call("b", (2,), 3)
    piece = tensor(2, shape=(2, 1, 4, 4))
    filling = replace(steps.calls[1], inputs=(piece,), outputs=(piece,))
    trace = replace(steps.trace(1), calls=(steps.calls[0], filling, steps.calls[2]))
    assert [value.meta.shape for value in flow(trace).values] == [tensor(0).shape] * 3


def test_memory_that_is_used_again_holds_another_tensor() -> None:
    steps = Steps().call("a", (1,), 2).call("b", (2,), 3).call("c", (3,), 2).call("d", (2,), 4)
    anew = replace(steps.calls[2], outputs=(tensor(2, shape=(2, 8, 2, 2)),))
    trace = replace(steps.trace(1), calls=(*steps.calls[:2], anew, steps.calls[3]))
    assert [value.meta.shape for value in flow(trace).values if value.producer == "c"] == [(2, 8, 2, 2)]


def test_containers_have_calls_of_their_own_and_of_children() -> None:
    steps = Steps().call("block.a", (1,), 2).call("block", (2, 1), 3).call("blocks.b", (3,), 4)
    assert flow(steps.trace(1)).containers == {"block"}
    assert flow(Steps().call("", (1,), 2).trace(1)).containers == frozenset()
    assert flow(Steps().call("", (1,), 2).call("a", (2,), 3).trace(1)).containers == {""}


def test_only_tensors_that_follow_the_format_are_labelled() -> None:
    def steps(name: str) -> Steps:
        return Steps(name).call("a", (1,), 2, answers="contiguous").call("b", (2,), 3).call("c", (3,), 4)

    found = labelled(flow(steps("contiguous").trace(1)), flow(steps("channels_last").trace(1)))
    assert told(found) == [(None, ["a"], set()), ("b", ["c"], set())]


def test_readers_and_writers_in_either_format_count() -> None:
    here = Steps().call("a", (1,), 2).call("b", (2,), 2, mutates=(0,)).call("e", (2,), 3)
    there = Steps("channels_last").call("a", (1,), 2).call("c", (2,), 2, mutates=(0,)).call("e", (2,), 3)
    found = labelled(flow(here.trace(1)), flow(there.trace(1)))
    assert told(found)[1] == ("a", ["b", "c"], {"b", "c"})


def test_where_the_formats_lead_to_other_tensors_nothing_is_labelled() -> None:
    here = Steps().call("a", (1,), 2).call("b", (2,), 3)
    there = Steps("channels_last").call("a", (1,), 2).call("a", (2,), 5).call("b", (5, 2), 3)
    found = labelled(flow(here.trace(1)), flow(there.trace(1)))
    assert told(found) == [(None, ["a"], set())]
