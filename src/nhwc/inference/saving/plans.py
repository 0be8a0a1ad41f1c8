"""Plans as data: buffers, places, items and ports by number, with the choices that were made for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from nhwc.inference.building import Plan
from nhwc.inference.choosing import Choice
from nhwc.inference.graph import Call, Graph, Node, Value
from nhwc.inference.items import Item, Placement
from nhwc.inference.layout import Buffer, Memory, Place
from nhwc.inference.native import ABSOLUTE
from nhwc.inference.operations import Fused
from nhwc.inference.run import Ports
from nhwc.inference.saving import steps
from nhwc.inference.saving.arguments import Reader, Writer


class PlanWriter:
    """Writes one plan. The numbers that it gives to buffers, places, values and nodes hold within the plan."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.tables: dict[str, list[Any]] = {"buffers": [], "places": [], "values": [], "nodes": []}
        self._numbers: dict[int, int] = {}

    def write(self, plan: Plan) -> dict[str, Any]:
        """The plan with its choices as JSON."""
        ports = plan.ports
        return {
            "items": [self._item(each, plan) for each in plan.placement.items],
            "inputs": [[self._value(value), self._place(place)] for value, place in ports.inputs],
            "returned": [[self._buffer(buffer), self._place(place)] for buffer, place in ports.returned],
            "outputs": [self._output(each, plan) for each in ports.outputs],
            "entries": ports.entries,
            "arena_bytes": plan.arena_bytes,
            "least_bytes": plan.least_bytes,
            **self.tables,
        }

    def _item(self, item: Item, plan: Plan) -> dict[str, Any]:
        choice = plan.choices.get(item)
        document = {
            "node": self._node(item.node),
            "work": self.writer.work(item.work, weightless=item.is_native),
            "inputs": [self._place(each) for each in item.inputs],
            "output": self._place(item.output),
            "fused": self.writer.operation(item.fused, weightless=item.is_native and not self.writer.keeps_weights),
            "addend": self._place(item.addend),
            "axis": item.axis,
            "exact": item.node in plan.exact,
        }
        if item.is_native:
            assert choice is not None
            read = [each.buffer.constant for each in item.reads if each.buffer.constant is not None]
            document["step"] = steps.written(choice.step, read, self.writer.constants)
            document["times_ms"] = choice.times_ms
        return document

    def _output(self, output: Any, plan: Plan) -> dict[str, Any]:
        if isinstance(output, Value):
            return {"value": self._value(output), "place": self._place(plan.placement.places.get(output))}
        return {"python": self.writer.value(output, None)}

    def _row(self, table: str, key: object, row: Any) -> int:
        self._numbers[id(key)] = len(self.tables[table])
        self.tables[table].append(row)
        return self._numbers[id(key)]

    def _buffer(self, buffer: Buffer) -> int:
        known = self._numbers.get(id(buffer))
        if known is not None:
            return known
        constant = None if buffer.constant is None else self.writer.constants.add(buffer.constant)
        return self._row("buffers", buffer, [buffer.memory.name, buffer.size, buffer.entry, buffer.offset, constant])

    def _place(self, place: Place | None) -> int | None:
        if place is None or id(place) in self._numbers:
            return None if place is None else self._numbers[id(place)]
        row = [self._buffer(place.buffer), place.offset, list(place.shape), list(place.strides)]
        return self._row("places", place, row)

    def _value(self, value: Value) -> int:
        if id(value) in self._numbers:
            return self._numbers[id(value)]
        dtype = None if value.dtype is None else self.writer.value(value.dtype, None)
        constant = None if value.constant is None else self.writer.constants.add(value.constant)
        shape = None if value.shape is None else list(value.shape)
        return self._row("values", value, [value.name, shape, dtype, constant])

    def _node(self, node: Node) -> int:
        if id(node) in self._numbers:
            return self._numbers[id(node)]
        row = [[self._value(each) for each in node.inputs], self._value(node.output), node.path, node.source]
        return self._row("nodes", node, row)


class PlanReader:
    """Reads one plan back."""

    def __init__(self, document: Mapping[str, Any], reader: Reader) -> None:
        self.document, self.reader = document, reader
        self.buffers = [self._buffer(each) for each in document["buffers"]]
        self.places = [
            Place(self.buffers[buffer], offset, tuple(shape), tuple(strides))
            for buffer, offset, shape, strides in document["places"]
        ]
        self.values = [self._value(each) for each in document["values"]]
        self.works = {each["node"]: reader.work(each["work"]) for each in document["items"]}
        self.nodes = [
            Node(
                self.works[number],
                [self.values[each] for each in inputs],
                self.values[output],
                path=path,
                source=source,
            )
            for number, (inputs, output, path, source) in enumerate(document["nodes"])
        ]

    def read(self, with_steps: bool) -> Plan:
        """The plan; with its choices, where this machine can run their steps."""
        document = self.document
        items = [self._item(each) for each in document["items"]]
        outputs = [self._output(each) for each in document["outputs"]]
        places = {
            self.values[each["value"]]: self.places[each["place"]]
            for each in document["outputs"]
            if each.get("place") is not None
        }
        ports = Ports(
            tuple((self.values[value], self._place(place)) for value, place in document["inputs"]),
            tuple((self.buffers[buffer], self.places[place]) for buffer, place in document["returned"]),
            tuple(outputs),
            places,
            document["entries"],
        )
        exact = {item.node for item, each in zip(items, document["items"], strict=True) if each["exact"]}
        placement = Placement(items, places, outputs)
        plan = Plan(Graph([], [], outputs), placement, ports, document["arena_bytes"], document["least_bytes"], exact)
        if with_steps:
            for item, each in zip(items, document["items"], strict=True):
                if item.is_native:
                    step = steps.read(each["step"], self.reader.kept)
                    plan.choices[item] = Choice(step.label, step, each["times_ms"], each["exact"])
        return plan

    def _buffer(self, row: Any) -> Buffer:
        memory, size, entry, offset, written = row
        constant = None if written is None else self.reader.kept.tensor(written)
        if constant is not None and Memory[memory] is Memory.CONSTANT:
            entry, offset = ABSOLUTE, constant.data_ptr()
        return Buffer(Memory[memory], size, entry, offset, constant)

    def _place(self, number: int | None) -> Place | None:
        return None if number is None else self.places[number]

    def _value(self, row: Any) -> Value:
        name, shape, written, constant = row
        dtype: torch.dtype | None = self.reader.value(written)
        held = None if constant is None else self.reader.kept.tensor(constant)
        return Value(name, None if shape is None else tuple(shape), dtype, held)

    def _item(self, each: Mapping[str, Any]) -> Item:
        work = self.reader.work(each["work"])
        fused: Fused = self.reader.value(each["fused"])
        inputs = tuple(self.places[place] for place in each["inputs"])
        places = self._place(each["output"]), fused, self._place(each["addend"])
        is_native = "step" in each and not isinstance(work, Call)
        return Item(self.nodes[each["node"]], work, inputs, *places, each["axis"], is_native)

    def _output(self, each: Mapping[str, Any]) -> Any:
        return self.values[each["value"]] if "value" in each else self.reader.value(each["python"])
