"""From a graph to a runner: passes done, values are placed, memory is planned, algorithms are chosen."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from nhwc.inference.by_torch import computed
from nhwc.inference.choosing import Choice, Chooser
from nhwc.inference.frames import Frame
from nhwc.inference.graph import Call, Graph, Node, Value
from nhwc.inference.items import Item, Placement, touched
from nhwc.inference.joins import slices_of
from nhwc.inference.layout import Buffer, Memory, Place
from nhwc.inference.memory import Life, least_possible, planned
from nhwc.inference.native import ARENA, FIRST_FREE, Program
from nhwc.inference.operations import Elementwise
from nhwc.inference.placing import Placer
from nhwc.inference.requesting import steps_for
from nhwc.inference.run import Ports, Runner, Section, ports_of
from nhwc.progress import Progress


@dataclass(eq=False)
class Plan:
    """Where everything of a graph lies, for inputs of certain strides. arena_bytes: what one call holds.

    exact: nodes that may not use algorithms which change the rounding of single products.
    """

    graph: Graph
    placement: Placement
    ports: Ports
    arena_bytes: int
    least_bytes: int
    exact: set[Node]
    choices: dict[Item, Choice] = field(default_factory=dict)


def plan(
    graph: Graph,
    input_strides: Mapping[Value, tuple[int, ...]],
    threads: int,
    exact: bool,
    learned: Mapping[Node, tuple[int, ...]],
) -> Plan:
    """Place every value and plan the arena."""

    def placed(slices: Mapping[Value, Place]) -> Placement:
        return Placer(graph, input_strides, slices, learned, threads, exact).placement()

    placement = placed({})
    slices = slices_of(graph, placement)
    if slices:
        placement = placed(slices)
    lives = _lives(placement)
    merged = _in_place(placement.items, lives)
    arena = {buffer: life for buffer, life in lives.items() if buffer.memory is Memory.ARENA and buffer not in merged}
    arena_bytes = planned(arena)
    for buffer in lives:
        root = buffer
        while root in merged:
            root = merged[root]
        if root is not buffer:
            buffer.offset = root.offset
        if buffer.memory is Memory.ARENA:
            buffer.entry = ARENA
    ports = ports_of(graph.inputs, placement, list(lives), FIRST_FREE)
    exact_nodes = {item.node for item in placement.items} if exact else set()
    return Plan(graph, placement, ports, arena_bytes, least_possible(arena), exact_nodes)


def _lives(placement: Placement) -> dict[Buffer, Life]:
    lives = {buffer: Life(*ends) for buffer, ends in touched(placement.items).items()}
    for output in placement.outputs:
        place = placement.places.get(output) if isinstance(output, Value) else None
        if place is not None and place.buffer in lives:
            lives[place.buffer] = Life(lives[place.buffer].first, len(placement.items))
    return lives


def _in_place(items: Sequence[Item], lives: dict[Buffer, Life]) -> dict[Buffer, Buffer]:
    """Results of pointwise operations that take the memory of an input which nothing reads afterwards."""
    merged: dict[Buffer, Buffer] = {}
    for position, item in enumerate(items):
        output = item.output
        if not isinstance(item.work, Elementwise) or not item.is_native or output is None or not _is_own(output):
            continue
        if lives[output.buffer].first != position:
            continue
        for place in item.inputs:
            root = place.buffer
            while root in merged:
                root = merged[root]
            ends = lives[root].last == position and _is_own(place) and place.strides == output.strides
            alone = sum(each.buffer is place.buffer for each in item.reads) == 1
            if ends and alone and place.shape == output.shape:
                merged[output.buffer] = root
                lives[root] = Life(lives[root].first, lives[output.buffer].last)
                break
    return merged


def _is_own(place: Place) -> bool:
    return place.buffer.memory is Memory.ARENA and place.is_whole()


def runner(of: Plan, threads: int, chooser: Chooser, progress: Progress) -> Runner:
    """Choose every step's algorithm for a number of threads, and join the steps to programs.

    What was chosen before stays, where its node's exactness is as it was.
    """
    frame, _, refill = _measuring_frame(of)
    native = [item for item in of.placement.items if item.is_native]
    for done, item in enumerate(native):
        progress("choosing algorithms", done, len(native))
        exact = item.node in of.exact
        if item not in of.choices or of.choices[item].exact != exact:
            request = item.request(threads, exact)
            of.choices[item] = chooser.choose(request, steps_for(request), frame.table, refill(item))
    progress("choosing algorithms", len(native), len(native))
    return assembled(of, threads)


def assembled(of: Plan, threads: int) -> Runner:
    """The runner of a plan whose choices are made."""
    return Runner(of.ports, _sections(of), of.arena_bytes, threads)


def inexact_items(of: Plan, threads: int) -> list[Item]:
    """Items whose algorithm changes the rounding of single products."""
    found = []
    for item, choice in of.choices.items():
        if not choice.exact and choice.label not in {each.label for each in steps_for(item.request(threads, True))}:
            found.append(item)
    return found


def own_error(of: Plan, item: Item, threads: int) -> float:
    """The relative error of one item's step on noise, against float64."""
    frame, held, refill = _measuring_frame(of, of.choices[item].step.scratch_bytes)
    refill(item)()
    assert item.output is not None
    assert not isinstance(item.work, Call)
    inputs = [frame.tensor(each, held).double() for each in item.inputs]
    addend = None if item.addend is None else frame.tensor(item.addend, held).double()
    exact = computed(item.work, inputs, item.output.shape, item.fused, addend, item.axis)
    Program([of.choices[item].step]).run(frame.table, frame.scratch, threads)
    return relative_error(frame.tensor(item.output, held), exact)


def relative_error(result: torch.Tensor, exact: torch.Tensor) -> float:
    """The greatest difference as a share of the greatest value; 0 where there are no values, infinite for a NaN."""
    if exact.numel() == 0:
        return 0.0
    scale = exact.abs().max().item() or 1.0
    error = (result.to(torch.float64) - exact).abs().max().item() / scale
    return math.inf if math.isnan(error) else error


_ELSEWHERE = frozenset({Memory.INPUT, Memory.OUTPUT, Memory.FOREIGN})


def _measuring_frame(
    of: Plan, scratch_bytes: int = 0
) -> tuple[Frame, dict[object, torch.Tensor], Callable[[Item], Callable[[], None]]]:
    """Memory like a call's, what it holds outside the arena, and what fills an item's inputs with noise."""
    frame = Frame.of(of.arena_bytes, scratch_bytes, of.ports.entries)
    frame.arena.zero_()
    held: dict[object, torch.Tensor] = {}
    for buffer in touched(of.placement.items):
        if buffer.memory in _ELSEWHERE:
            held[buffer] = torch.zeros(max(buffer.size, 1), dtype=torch.float32, device="cpu")
            frame.table[buffer.entry] = held[buffer].data_ptr()

    def refill(item: Item) -> Callable[[], None]:
        def fill() -> None:
            for place in item.reads:
                if place.buffer.memory is not Memory.CONSTANT:
                    tensor = frame.tensor(place, held)
                    noise = (
                        torch.arange(tensor.numel(), dtype=torch.float32, device="cpu").mul_(0.618034).frac_().sub_(0.5)
                    )
                    tensor.copy_(noise.view(tensor.shape))

        return fill

    return frame, held, refill


def _sections(of: Plan) -> list[Section]:
    sections: list[Section] = []
    run: list[Item] = []

    def close() -> None:
        if run:
            sections.append(Section(tuple(run), Program([of.choices[item].step for item in run])))
            run.clear()

    last = _last_reads(of)
    for position, item in enumerate(of.placement.items):
        if item.is_native:
            run.append(item)
            continue
        close()
        drops = tuple(key for key, at in last.items() if at == position)
        sections.append(Section((item,), None, drops))
    close()
    return sections


def _last_reads(of: Plan) -> dict[object, int]:
    """What torch made → the last item that reads it; what is returned is not among them."""
    last: dict[object, int] = {}
    for position, item in enumerate(of.placement.items):
        keys: list[object] = [place.buffer for place in item.reads if place.buffer.memory is Memory.FOREIGN]
        keys += [value for value in item.node.inputs if not value.is_placed]
        keys += [item.node.output] if item.output is None else [item.output.buffer]
        for key in keys:
            last[key] = position
    kept = set()
    for output in of.placement.outputs:
        if isinstance(output, Value):
            place = of.placement.places.get(output)
            kept.add(output if place is None else place.buffer)
    return {key: at for key, at in last.items() if key not in kept}
