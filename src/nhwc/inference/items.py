"""What a plan consists of: items, each a compiled step or a call of torch, with the places that it reads and writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from nhwc.inference.graph import Call, Node, Value
from nhwc.inference.layout import Buffer, Place
from nhwc.inference.operations import Fused, Operation
from nhwc.inference.requesting import requested
from nhwc.inference.steps.registry import Request


@dataclass(eq=False)
class Item:
    """A node, or a copy that a node needs, with the places of what it reads and writes.

    is_native: a compiled step runs it, else torch. output: None for a value without a place.
    """

    node: Node
    work: Operation | Call
    inputs: tuple[Place, ...]
    output: Place | None
    fused: Fused = field(default_factory=Fused)
    addend: Place | None = None
    axis: int | None = None
    is_native: bool = False

    def request(self, threads: int, exact: bool) -> Request:
        """What its step's candidates are asked."""
        assert self.output is not None
        assert not isinstance(self.work, Call)
        return requested(self.work, self.inputs, self.output, self.fused, self.addend, self.axis, threads, exact)

    @property
    def reads(self) -> tuple[Place, ...]:
        return self.inputs if self.addend is None else (*self.inputs, self.addend)


@dataclass(eq=False)
class Placement:
    """Items in order, where the values lie, and what is returned: Values, or Python constants."""

    items: list[Item]
    places: dict[Value, Place]
    outputs: list[Any]


def touched(items: Sequence[Item]) -> dict[Buffer, tuple[int, int]]:
    """Buffer → the first and the last item that touch it."""
    found: dict[Buffer, tuple[int, int]] = {}
    for position, item in enumerate(items):
        for place in (*item.reads, *([] if item.output is None else [item.output])):
            first, _ = found.get(place.buffer, (position, position))
            found[place.buffer] = (first, position)
    return found
