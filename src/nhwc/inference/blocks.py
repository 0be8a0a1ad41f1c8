"""Inverted residuals as one step, where that measures faster than their convolutions one after the other."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from nhwc.inference.choosing import Chooser
from nhwc.inference.graph import Graph, Node, Value
from nhwc.inference.layout import default_order, strides_in
from nhwc.inference.native import Placed
from nhwc.inference.operations import Convolution, Fused, InvertedResidual
from nhwc.inference.requesting import steps_for
from nhwc.inference.steps.registry import Request

_TABLE = (ctypes.c_void_p * 2)()  # every tensor here is named by its address


@dataclass(frozen=True)
class Block:
    """Convolutions that follow each other, the depthwise one among them, and the operation that they make."""

    nodes: tuple[Node, ...]
    work: InvertedResidual


def fuse(graph: Graph, threads: int, exact: bool, chooser: Chooser) -> list[tuple[int, ...]]:
    """Replace every block by its operation where that takes less time; unchanged where the budget is spent.

    Gives the places of each block's nodes in the graph as it was, for ``repeat``.
    """
    places = {node: place for place, node in enumerate(graph.nodes)}
    done = []
    for node in list(graph.nodes):
        if node in graph.nodes and _is_depthwise(node.work):
            best, saved = None, 0.0
            for block in _blocks(graph, node):
                gain = _gain_ms(block, threads, exact, chooser)
                if gain is not None and gain > saved:
                    best, saved = block, gain
            if best is not None:
                done.append(tuple(places[each] for each in best.nodes))
                _replace(graph, best)
    return done


def repeat(graph: Graph, done: Sequence[tuple[int, ...]]) -> None:
    """Replace the same blocks in another graph of the same model."""
    nodes = list(graph.nodes)
    for places in done:
        (deep,) = [place for place in places if _is_depthwise(nodes[place].work)]
        expand = nodes[places[0]] if places[0] != deep else None
        project = nodes[places[-1]] if places[-1] != deep else None
        _replace(graph, _block(expand, nodes[deep], project))


def _is_depthwise(work: object) -> bool:
    if not isinstance(work, Convolution) or work.transposed or work.weight.dim() != 4:
        return False
    return tuple(work.weight.shape[:2]) == (work.groups, 1) and work.groups > 1


def _is_pointwise(node: Node | None) -> bool:
    if node is None or not isinstance(node.work, Convolution) or node.work.transposed or node.work.groups != 1:
        return False
    work = node.work
    return tuple(work.weight.shape[2:]) == work.stride == (1, 1) and not any(work.padding)


def _blocks(graph: Graph, deep: Node) -> Iterator[Block]:
    """The longest first: with the convolutions before and after, with one of them."""
    users = graph.users()
    before = graph.producers().get(deep.inputs[0])
    alone = before is not None and graph.single_user(deep.inputs[0], users) is deep
    expand = before if alone and _is_pointwise(before) and before is not None and before.addend is None else None
    after = graph.single_user(deep.output, users)
    reads = after is not None and after.inputs == [deep.output] and after.addend is not deep.output
    project = after if reads and _is_pointwise(after) and deep.addend is None else None
    for first, last in ((expand, project), (None, project), (expand, None)):
        if first is not None or last is not None:
            yield _block(first, deep, last)


def _block(expand: Node | None, deep: Node, project: Node | None) -> Block:
    nodes = tuple(each for each in (expand, deep, project) if each is not None)
    work = InvertedResidual(_work(expand), _known(deep), _work(project), tuple(each.fused for each in nodes[:-1]))
    return Block(nodes, work)


def _known(node: Node) -> Convolution:
    assert isinstance(node.work, Convolution)
    return node.work


def _work(node: Node | None) -> Convolution | None:
    return None if node is None else _known(node)


def _gain_ms(block: Block, threads: int, exact: bool, chooser: Chooser) -> float | None:
    """Milliseconds that the block saves as one step; None where it cannot be told."""
    tensors: dict[Value, torch.Tensor] = {}

    def placed(value: Value) -> Placed:
        if value not in tensors:
            strides = strides_in(default_order(len(value.sizes)), value.sizes)
            tensors[value] = torch.empty_strided(value.sizes, strides, dtype=torch.float32, device="cpu").uniform_(
                -0.5, 0.5, generator=generator
            )
        return Placed.constant(tensors[value])

    def least(work: Convolution | InvertedResidual, first: Node, last: Node, fused: Fused) -> float | None:
        addend = None if last.addend is None else placed(last.addend)
        asked = Request(work, (placed(first.inputs[0]),), placed(last.output), fused, addend, threads, exact)
        return chooser.least_ms(asked, steps_for(asked), _TABLE)

    generator = torch.Generator().manual_seed(0)
    together = least(block.work, block.nodes[0], block.nodes[-1], block.nodes[-1].fused)
    if together is None:
        return None
    apart = [least(_known(each), each, each, each.fused) for each in block.nodes]
    known = [each for each in apart if each is not None]
    return sum(known) - together if len(known) == len(apart) else None


def _replace(graph: Graph, block: Block) -> None:
    first, last = block.nodes[0], block.nodes[-1]
    last.work, last.inputs = block.work, list(first.inputs)
    gone = set(block.nodes[:-1])
    graph.nodes = [node for node in graph.nodes if node not in gone]
