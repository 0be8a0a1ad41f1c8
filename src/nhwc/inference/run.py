"""Runs a plan: programs of compiled steps, and calls of torch between them.

Any number of Python threads may call at once: each call takes a frame of its own from a pool. Nothing is allocated
while compiled steps run, but for what is returned.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from nhwc.errors import EngineError
from nhwc.inference.by_torch import computed
from nhwc.inference.frames import Frame
from nhwc.inference.graph import Call, Slot, Value
from nhwc.inference.layout import Buffer, Memory, Place
from nhwc.inference.native import Program
from nhwc.inference.operations import Copy
from nhwc.inference.placing import Item, Placement

Held = dict[object, Any]


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
        try:
            frame = self._pool.pop()
        except IndexError:
            frame = Frame.of(self.arena_bytes, self.scratch_bytes, self.ports.entries)
        try:
            held = self._bound(frame, tensors)
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
            self._pool.append(frame)

    def _bound(self, frame: Frame, tensors: Sequence[torch.Tensor]) -> Held:
        held: Held = {}
        for tensor, (value, place) in zip(tensors, self.ports.inputs, strict=True):
            if place is None:
                held[value] = tensor
                continue
            if tensor.stride() != place.strides or tensor.requires_grad or tensor.is_neg():
                tensor = _restrided(tensor.detach(), place)
            held[place.buffer] = tensor
            frame.table[place.buffer.entry] = tensor.data_ptr()
        for buffer, place in self.ports.returned:
            fresh = torch.empty_strided(place.shape, place.strides)
            held[buffer] = fresh
            frame.table[buffer.entry] = fresh.data_ptr()
        return held

    def _output(self, output: Any, frame: Frame, held: Held) -> Any:
        if not isinstance(output, Value):
            return output
        if output.constant is not None:
            return output.constant.clone()
        place = self.ports.places.get(output)
        return held[output] if place is None else frame.tensor(place, held)


def _restrided(tensor: torch.Tensor, place: Place) -> torch.Tensor:
    if tensor.stride() == place.strides and not tensor.is_neg():
        return tensor
    copied = torch.empty_strided(place.shape, place.strides, dtype=tensor.dtype)
    return copied.copy_(tensor)


def run_by_torch(item: Item, frame: Frame, held: Held) -> None:
    """Run one item by torch, on views of the frame's memory; its result is held, or written where it belongs."""
    if isinstance(item.work, Call):
        result = _called(item, item.work, frame, held)
    else:
        assert item.output is not None
        inputs = [frame.tensor(each, held) for each in item.inputs]
        if isinstance(item.work, Copy) and not item.work.padding:
            frame.tensor(item.output, held).copy_(inputs[0])
            return
        addend = None if item.addend is None else frame.tensor(item.addend, held)
        result = computed(item.work, inputs, item.output.shape, item.fused, addend, item.axis)
    if item.output is None:
        held[item.node.output] = _apart(result, frame)
        return
    place = item.output
    if result.shape != place.shape or result.dtype != torch.float32:
        raise EngineError(
            f"{item.node.path or 'the model'}: {item.node.output.name} is {result.dtype} of shape "
            f"{tuple(result.shape)} where {tuple(place.shape)} was captured"
        )
    if result.stride() != place.strides:
        result = _restrided(result, place)
    held[place.buffer] = result = _apart(result, frame)
    frame.table[place.buffer.entry] = result.data_ptr()


def _called(item: Item, call: Call, frame: Frame, held: Held) -> Any:
    inputs, places = [], iter(item.inputs)
    for value in item.node.inputs:
        inputs.append(frame.tensor(next(places), held) if value.is_placed else held[value])
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
