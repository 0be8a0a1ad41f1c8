"""Every value gets its place, every node becomes an item: a compiled step, or a call of torch.

A view costs nothing where strides allow it, else the values are copied. A concatenation is written in place by those
that make its parts; see joins.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from nhwc.inference.graph import Call, Graph, Join, Node, Value, View
from nhwc.inference.items import Item, Placement
from nhwc.inference.layout import (
    Buffer,
    Memory,
    Order,
    Place,
    constant_place,
    default_order,
    order_of,
    strides_in,
    with_axis_innermost,
)
from nhwc.inference.operations import Copy, Elementwise, Fused, Term
from nhwc.inference.requesting import steps_for


class Placer:
    """Walks the graph once. slices: where joined values shall lie, from an earlier walk; see joins.py.

    input_strides: of the graph's float inputs. learned: the strides that torch gave to what it computed, where they
    are not what was expected.
    """

    def __init__(
        self,
        graph: Graph,
        input_strides: Mapping[Value, tuple[int, ...]],
        slices: Mapping[Value, Place],
        learned: Mapping[Node, tuple[int, ...]],
        threads: int,
        exact: bool,
    ) -> None:
        self.graph, self.slices, self.learned = graph, slices, learned
        self.threads, self.exact = threads, exact
        self.items: list[Item] = []
        self.places: dict[Value, Place] = {}
        self._copies: dict[tuple[Any, ...], Place] = {}
        self._returned_as: dict[Buffer, Value] = {}
        self._parts: set[tuple[Buffer, int, Buffer, int]] = set()  # copied into joined buffers
        for value in graph.inputs:
            if value.is_placed:
                strides = input_strides[value]
                span = 1 + sum((size - 1) * step for size, step in zip(value.sizes, strides, strict=True))
                buffer = Buffer(Memory.INPUT, span if math.prod(value.sizes) else 0)
                self.places[value] = Place(buffer, 0, value.sizes, strides)

    def placement(self) -> Placement:
        for node in self.graph.nodes:
            self._place(node)
        outputs = [
            self._returned(each) if isinstance(each, Value) and each.is_placed and each.constant is None else each
            for each in self.graph.outputs
        ]
        return Placement(self.items, self.places, outputs)

    def _place(self, node: Node) -> None:
        match node.work:
            case View() as view:
                self.places[node.output] = self._viewed(node, view)
            case Join() as join:
                self.places[node.output] = self._joined(node, join)
            case Call():
                self._called(node)
            case _:
                self._computed(node)

    def _of(self, value: Value) -> Place:
        if value not in self.places and value.constant is not None:
            self.places[value] = constant_place(value.constant)
        return self.places[value]

    def _fresh(self, shape: tuple[int, ...], order: Order) -> Place:
        return Place(Buffer(Memory.ARENA, math.prod(shape)), 0, shape, strides_in(order, shape))

    def _copied(self, node: Node, source: Place, target: Place) -> Place:
        """An item that copies values; by torch where no step can."""
        item = Item(node, Copy(), (source,), target)
        item.is_native = bool(steps_for(item.request(self.threads, self.exact)))
        self.items.append(item)
        return target

    def _relaid(self, node: Node, source: Place, order: Order) -> Place:
        """The values in another order, copied once for all that want them so."""
        target = self._fresh(source.shape, order)
        key = (source.buffer, source.offset, source.shape, source.strides, target.strides)
        if key not in self._copies:
            self._copies[key] = self._copied(node, source, target)
        return self._copies[key]

    def _viewed(self, node: Node, view: View) -> Place:
        source = self._of(node.inputs[0])
        seen = source.through(view)
        if seen is not None:
            return seen
        shape = node.output.sizes
        target = self.slices.get(node.output) or self._fresh(shape, default_order(len(shape)))
        back = target.through(View(lambda tensor: tensor.view(source.shape), "reshape"))
        if back is not None:
            self._copied(node, source, back)
            return target
        plain = self._copied(node, source, self._fresh(source.shape, tuple(range(len(source.shape)))))
        seen = plain.through(view)
        assert seen is not None, f"{node.output.name}: a dense tensor cannot be seen as {shape}"
        return seen

    def _joined(self, node: Node, join: Join) -> Place:
        parts = [self._of(each) for each in node.inputs]
        shape = node.output.sizes
        whole = self.slices.get(node.output) or self._fresh(shape, self._order(node, shape))
        start = 0
        for part in parts:
            target = self.part_of(whole, join.dim, start, part.shape[join.dim])
            start += part.shape[join.dim]
            key = (part.buffer, part.offset, target.buffer, target.offset)
            if not _same(part, target) and key not in self._parts:
                self._parts.add(key)
                self._copied(node, part, target)
        return whole

    @staticmethod
    def part_of(whole: Place, dim: int, start: int, size: int) -> Place:
        """A slice along one dimension."""
        shape = (*whole.shape[:dim], size, *whole.shape[dim + 1 :])
        return Place(whole.buffer, whole.offset + start * whole.strides[dim], shape, whole.strides)

    def _called(self, node: Node) -> None:
        output = None
        if node.output.is_placed:
            shape = node.output.sizes
            strides = self.learned.get(node) or strides_in(self._order(node, shape), shape)
            output = Place(Buffer(Memory.FOREIGN, math.prod(shape)), 0, shape, strides)
            self.places[node.output] = output
        inputs = tuple(self._of(each) for each in node.inputs if each.is_placed)
        assert isinstance(node.work, Call)
        self.items.append(Item(node, node.work, inputs, output))

    def _computed(self, node: Node) -> None:
        work = node.work
        assert not isinstance(work, View | Join | Call)
        inputs = [self._of(each) for each in node.inputs]
        if node.axis is not None:
            inputs[0] = self._dense_along(node, inputs[0], node.axis)
        addend = None if node.addend is None else self._of(node.addend)
        shape = node.output.sizes
        order = self._order(node, shape)
        if isinstance(work, Elementwise):
            inputs = [self._reordered(each, order) for each in inputs]
        target = self.slices.get(node.output) or self._fresh(shape, order)
        item = Item(node, work, tuple(inputs), target, node.fused, addend, node.axis)  # type: ignore[arg-type]
        if self._fits(item):
            self.items.append(item)
        elif not node.is_plain and self._fits(replace(item, fused=Fused(), addend=None)):
            self._apart(item)
        else:
            self._by_torch(item)
        final = self.items[-1].output
        assert final is not None
        self.places[node.output] = final

    def _fits(self, item: Item) -> bool:
        """Whether there is a step for it; inputs that no step reads as they lie are tried as copies."""
        item.is_native = bool(steps_for(item.request(self.threads, self.exact)))
        if item.is_native or isinstance(item.work, Elementwise):
            return item.is_native
        rank = len(item.inputs[0].shape)
        order = with_axis_innermost(tuple(range(rank)), item.axis) if item.axis is not None else default_order(rank)
        plain = tuple(self._fresh(each.shape, order) for each in item.inputs)
        moved = any(each.strides != other.strides for each, other in zip(plain, item.inputs, strict=True))
        if moved and steps_for(replace(item, inputs=plain).request(self.threads, self.exact)):
            item.inputs = tuple(self._relaid(item.node, each, order) for each in item.inputs)
            item.is_native = True
        return item.is_native

    def _apart(self, item: Item) -> None:
        """An operation whose step takes no epilogue, and then the epilogue."""
        assert item.output is not None
        terms, inputs, fused = [Term("input")], [item.output], item.fused

        def add() -> None:
            if item.addend is not None:
                last = len(terms) - 1
                inputs.append(item.addend)
                terms.extend((Term("input", index=1), Term("add", (last, last + 1))))

        if not fused.addend_last:
            add()
        if fused.activation:
            terms.append(Term("activation", (len(terms) - 1,), activation=fused.activation, lo=fused.lo, hi=fused.hi))
        if fused.addend_last:
            add()
        first = replace(item, fused=Fused(), addend=None)
        assert self._fits(first)
        self.items.append(first)
        second = Item(item.node, Elementwise(tuple(terms)), tuple(inputs), item.output)
        if fused.slope is None and self._fits(second):
            self.items.append(second)
        else:
            self.items.pop()
            self._by_torch(item)

    def _by_torch(self, item: Item) -> None:
        assert item.output is not None
        item.is_native = False
        shape = item.output.shape
        if not (isinstance(item.work, Copy) and not item.work.padding):
            strides = self.learned.get(item.node) or strides_in(self._order(item.node, shape), shape)
            item.output = Place(Buffer(Memory.FOREIGN, math.prod(shape)), 0, shape, strides)
        self.items.append(item)

    def _order(self, node: Node, shape: tuple[int, ...]) -> Order:
        """The order of a result's dimensions: an input's of the same rank for what works on any, else the default."""
        order = default_order(len(shape))
        follows = isinstance(node.work, Elementwise | Join | Call) or node.axis is not None
        if follows:
            alike = [
                place
                for place in (self._of(each) for each in node.inputs if each.is_placed)
                if len(place.shape) == len(shape) and (place.shape == shape or not isinstance(node.work, Elementwise))
            ]
            moving = [each for each in alike if each.buffer.memory is not Memory.CONSTANT] or alike
            order = order_of(moving[0].shape, moving[0].strides) if moving else order
            if isinstance(node.work, Call) and not moving:
                order = tuple(range(len(shape)))
        return order if node.axis is None else with_axis_innermost(order, node.axis)

    def _dense_along(self, node: Node, place: Place, axis: int) -> Place:
        if place.strides[axis] == 1 or place.shape[axis] == 1:
            return place
        order = with_axis_innermost(order_of(place.shape, place.strides), axis)
        return self._relaid(node, place, order)

    def _reordered(self, place: Place, order: Order) -> Place:
        """A constant operand in the order of the result."""
        constant = place.buffer.constant
        if constant is None or len(place.shape) < 2 or constant.dim() != len(order) or not place.is_whole():
            return place
        back = [order.index(dim) for dim in range(len(order))]
        return constant_place(constant.permute(order).contiguous().permute(back))

    def _returned(self, value: Value) -> Value:
        """A value that the graph returns: in memory of its own, whole, which no other one is returned in."""
        place = self.places[value]
        memory = place.buffer.memory
        if memory is Memory.ARENA and place.is_whole():
            memory = place.buffer.memory = Memory.OUTPUT
        whole = memory in {Memory.OUTPUT, Memory.FOREIGN} and place.is_whole()
        if whole and self._returned_as.setdefault(place.buffer, value) is value:
            return value
        fresh = Value(f"{value.name}.returned", value.sizes, torch.float32)
        node = Node(Copy(), [value], fresh)
        target = self._fresh(value.sizes, order_of(place.shape, place.strides))
        target.buffer.memory = Memory.OUTPUT
        self.places[fresh] = self._copied(node, place, target)
        return fresh


def _same(one: Place, other: Place) -> bool:
    return one.buffer is other.buffer and one.offset == other.offset and one.strides == other.strides
