"""Concatenations written in place: the slice of the joined buffer that each part's maker writes into."""

from __future__ import annotations

import math

from nhwc.inference.graph import Graph, Join, Node, Value
from nhwc.inference.items import Placement
from nhwc.inference.layout import Buffer, Memory, Place, order_of
from nhwc.inference.placing import Placer


def slices_of(graph: Graph, first: Placement) -> dict[Value, Place]:
    """Value → its slice of a joined buffer, for all that a compiled step makes; ``first``: the same without slices.

    The last concatenation comes first: where an earlier one joins a run of the parts of a later one, as dense blocks
    do, it is a slice of the later one's buffer and costs nothing.
    """
    free = {node.output for node in graph.nodes if isinstance(node.work, Join)}
    for item in first.items:
        if item.is_native and item.output is not None and item.output is first.places.get(item.node.output):
            free.add(item.node.output)
    found: dict[Value, Place] = {}
    copied: dict[Value, Place] = {}
    for node in reversed(graph.nodes):
        if isinstance(node.work, Join):
            _assign(node, node.work.dim, first, free, found, copied)
    return found


def _assign(
    node: Node,
    dim: int,
    first: Placement,
    free: set[Value],
    found: dict[Value, Place],
    copied: dict[Value, Place],
) -> None:
    own = found.get(node.output) or _run(node, dim, {**copied, **found})
    if own is None:
        lying = first.places[node.output]
        own = Place(Buffer(Memory.ARENA, math.prod(lying.shape)), 0, lying.shape, lying.strides)
    found[node.output] = own
    start = 0
    for value in node.inputs:
        size = value.sizes[dim]
        alike = value in free and order_of(*_lying(first, value)) == order_of(own.shape, own.strides)
        if alike and value not in found:
            found[value] = Placer.part_of(own, dim, start, size)
        elif value not in found and value not in copied:
            copied[value] = Placer.part_of(own, dim, start, size)  # the placer copies it there, once
        start += size


def _lying(first: Placement, value: Value) -> tuple[tuple[int, ...], tuple[int, ...]]:
    place = first.places[value]
    return place.shape, place.strides


def _run(node: Node, dim: int, found: dict[Value, Place]) -> Place | None:
    """Where all parts lie one after the other already; None where they do not."""
    lying = [found.get(value) for value in node.inputs]
    head = lying[0]
    if head is None:
        return None
    end = head.offset
    for place, value in zip(lying, node.inputs, strict=True):
        if place is None or place.buffer is not head.buffer or place.offset != end or place.strides != head.strides:
            return None
        end += value.sizes[dim] * head.strides[dim]
    return Place(head.buffer, head.offset, node.output.sizes, head.strides)
