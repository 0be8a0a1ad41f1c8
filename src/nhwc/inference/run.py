"""Runs a plan: programs of compiled steps, and calls of torch between them.

Any number of Python threads may call at once: each call takes a frame of its own from a pool. Nothing is allocated
while compiled steps run, but for what is returned.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from nhwc.errors import EngineError
from nhwc.inference.by_torch import computed
from nhwc.inference.frames import Frame
from nhwc.inference.graph import Call, Node, Slot, Value
from nhwc.inference.items import Item, Placement
from nhwc.inference.layout import Buffer, Memory, Place
from nhwc.inference.native import Program
from nhwc.inference.operations import Copy

Held = dict[object, Any]

#: These refuse volumes whose strides can be read as channels last (``pixel_shuffle_kernel`` of torch 2.11 to 2.14).
_CONTIGUOUS_VOLUMES = {torch.ops.aten.pixel_shuffle.default, torch.ops.aten.pixel_unshuffle.default}


@dataclass(frozen=True, eq=False)
class Section:
    """Consecutive items: a program of compiled steps, or one item for torch. drops: what nothing reads afterwards."""

    items: tuple[Item, ...]
    program: Program | None
    drops: tuple[object, ...] = ()


@dataclass(frozen=True, eq=False)
class Ports:
    """How tensors come and go. inputs: the graph's tensors in order, with the place of those that are placed.

    returned: buffers of outputs, with the place that covers each. outputs: Values or Python constants.
    """

    inputs: tuple[tuple[Value, Place | None], ...]
    returned: tuple[tuple[Buffer, Place], ...]
    outputs: tuple[Any, ...]
    places: dict[Value, Place]
    entries: int


class Runner:
    """A plan made ready for a number of threads."""

    def __init__(self, ports: Ports, sections: Sequence[Section], arena_bytes: int, threads: int) -> None:
        self.ports, self.sections, self.arena_bytes, self.threads = ports, tuple(sections), arena_bytes, threads
        self.scratch_bytes = max((each.program.scratch_bytes for each in sections if each.program), default=0)
        self._pool: list[Frame] = []

    def __call__(
        self, tensors: Sequence[torch.Tensor], clock: Callable[[Item, float], None] | None = None
    ) -> list[Any]:
        """The outputs for input tensors of the shapes and dtypes that were planned for, in any strides.

        clock: gets every item's seconds, for reports.
        """
        frame = self.take()
        try:
            held = bound(self.ports, frame, tensors)
            for section in self.sections:
                if section.program is None:
                    start = time.perf_counter()
                    run_by_torch(section.items[0], frame, held)
                    if clock is not None:
                        clock(section.items[0], time.perf_counter() - start)
                elif clock is None:
                    section.program.run(frame.table, frame.scratch, self.threads)
                else:
                    taken = section.program.timed(frame.table, frame.scratch, self.threads)
                    for item, nanoseconds in zip(section.items, taken, strict=True):
                        clock(item, nanoseconds / 1e9)
                for each in section.drops:
                    held.pop(each, None)
            return [self._output(each, frame, held) for each in self.ports.outputs]
        finally:
            self.give(frame)

    def take(self) -> Frame:
        """A frame that no other call uses until it is given back."""
        try:
            return self._pool.pop()
        except IndexError:
            return Frame.of(self.arena_bytes, self.scratch_bytes, self.ports.entries)

    def give(self, frame: Frame) -> None:
        """Give a frame back."""
        self._pool.append(frame)

    def _output(self, output: Any, frame: Frame, held: Held) -> Any:
        if not isinstance(output, Value):
            return output
        if output.constant is not None:
            return output.constant.clone()
        place = self.ports.places.get(output)
        return held[output] if place is None else frame.tensor(place, held)


def bound(ports: Ports, frame: Frame, tensors: Sequence[torch.Tensor]) -> Held:
    """Tensors of a call by buffer, the frame's table pointing to them: its inputs, and fresh ones for its outputs."""
    held: Held = {}
    for tensor, (value, place) in zip(tensors, ports.inputs, strict=True):
        if place is None:
            held[value] = tensor
        else:
            _hold(place.buffer, _restrided(tensor.detach(), place), frame, held)
    for buffer, place in ports.returned:
        _hold(buffer, torch.empty_strided(place.shape, place.strides, dtype=torch.float32, device="cpu"), frame, held)
    return held


def _hold(buffer: Buffer, tensor: torch.Tensor, frame: Frame, held: Held) -> None:
    held[buffer] = tensor
    frame.table[buffer.entry] = tensor.data_ptr()


def learned_strides(
    ports: Ports, items: Sequence[Item], arena_bytes: int, tensors: Sequence[torch.Tensor]
) -> dict[Node, tuple[int, ...]]:
    """The strides that torch gives to what it computes, where they are not those that were planned; torch runs all."""
    frame = Frame.of(arena_bytes, 0, ports.entries)
    held = bound(ports, frame, tensors)
    found: dict[Node, tuple[int, ...]] = {}
    for item in items:
        if item.is_native:
            assert item.output is not None
            frame.tensor(item.output, held).copy_(_result(item, frame, held))
            continue
        strides = run_by_torch(item, frame, held)
        if item.output is not None and strides is not None and strides != item.output.strides:
            found[item.node] = strides
    return found


def _result(item: Item, frame: Frame, held: Held) -> torch.Tensor:
    assert item.output is not None
    assert not isinstance(item.work, Call)
    inputs = [frame.tensor(each, held) for each in item.inputs]
    addend = None if item.addend is None else frame.tensor(item.addend, held)
    return computed(item.work, inputs, item.output.shape, item.fused, addend, item.axis)


def _restrided(tensor: torch.Tensor, place: Place) -> torch.Tensor:
    if tensor.stride() == place.strides and not tensor.is_neg():
        return tensor
    copied = torch.empty_strided(place.shape, place.strides, dtype=tensor.dtype, device="cpu")
    return copied.copy_(tensor)


def run_by_torch(item: Item, frame: Frame, held: Held) -> tuple[int, ...] | None:
    """Run one item by torch, on views of the frame's memory; its result is held, or written where it belongs.

    Gives the strides that torch gave to the result, None where they do not matter.
    """
    if isinstance(item.work, Copy) and not item.work.padding:
        assert item.output is not None
        frame.tensor(item.output, held).copy_(frame.tensor(item.inputs[0], held))
        return None
    result = _called(item, item.work, frame, held) if isinstance(item.work, Call) else _result(item, frame, held)
    place = item.output
    if place is None:
        held[item.node.output] = _apart(result, frame)
        return None
    if result.shape != place.shape or result.dtype != torch.float32:
        raise EngineError(
            f"{item.node.path or 'the model'}: {item.node.output.name} is {result.dtype} of shape "
            f"{tuple(result.shape)} where {tuple(place.shape)} was captured"
        )
    strides = tuple(result.stride())
    _hold(place.buffer, _apart(_restrided(result, place), frame), frame, held)
    return strides


def _called(item: Item, call: Call, frame: Frame, held: Held) -> Any:
    places = iter(item.inputs)
    inputs = [frame.tensor(next(places), held) if each.is_placed else held[each] for each in item.node.inputs]
    if call.target in _CONTIGUOUS_VOLUMES:
        inputs = [each.clone(memory_format=torch.contiguous_format) if each.dim() > 4 else each for each in inputs]
    args = [_filled(each, inputs) for each in call.args]
    kwargs = {key: _filled(each, inputs) for key, each in call.kwargs.items()}
    return call.target(*args, **kwargs)


def _filled(argument: Any, inputs: Sequence[Any]) -> Any:
    if isinstance(argument, Slot):
        return inputs[argument.index]
    if isinstance(argument, list | tuple):
        return type(argument)(_filled(each, inputs) for each in argument)
    if isinstance(argument, dict):
        return {key: _filled(each, inputs) for key, each in argument.items()}
    return argument


def _apart(result: Any, frame: Frame) -> Any:
    """The result in memory of its own: the arena is another call's next."""
    if isinstance(result, torch.Tensor):
        return result.clone() if frame.shares(result) else result
    if isinstance(result, list | tuple):
        return type(result)(_apart(each, frame) for each in result)
    return result


def ports_of(inputs: Sequence[Value], placement: Placement, buffers: Sequence[Buffer], first_entry: int) -> Ports:
    """Give buffers outside the arena their table entries."""
    entry = first_entry
    known: set[Buffer] = set()
    ports = []
    returned: dict[Buffer, Place] = {}
    for value in inputs:
        place = placement.places.get(value) if value.is_placed else None
        ports.append((value, place))
        known |= {place.buffer} if place is not None else set()
    known |= {buffer for buffer in buffers if buffer.memory in {Memory.FOREIGN, Memory.OUTPUT}}
    for output in placement.outputs:
        place = placement.places.get(output) if isinstance(output, Value) else None
        if place is not None and place.buffer.memory is Memory.OUTPUT:
            returned.setdefault(place.buffer, place)
            known.add(place.buffer)
    for buffer in sorted(known, key=lambda each: each.memory.value):
        buffer.entry, entry = entry, entry + 1
    return Ports(tuple(ports), tuple(returned.items()), tuple(placement.outputs), placement.places, entry)
