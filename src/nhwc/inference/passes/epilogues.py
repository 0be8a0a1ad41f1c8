"""Activations and residual additions become epilogues of the convolution or product before them."""

from __future__ import annotations

from dataclasses import replace

from nhwc.inference.graph import Graph, Node, Value
from nhwc.inference.native import Activation
from nhwc.inference.operations import Convolution, Elementwise, Fused, Linear


def fuse(graph: Graph) -> None:
    """Take in every activation and every sum of equal shapes whose operand nothing else reads."""
    producers, users = graph.producers(), graph.users()
    for node in list(graph.nodes):
        work = node.work
        if not isinstance(work, Elementwise) or not node.is_plain:
            continue
        makers = [_maker(graph, value, node, producers, users) for value in node.inputs]
        kinds = [term.kind for term in work.terms]
        if kinds == ["input", "activation"] and makers[0] is not None:
            term = work.terms[1]
            if makers[0].fused.activation == Activation.NONE:
                makers[0].fused = Fused(term.activation, term.lo, term.hi)
                _take(graph, makers[0], node, producers)
        elif kinds == ["input", "input", "add"] and node.inputs[0] is not node.inputs[1]:
            _add(graph, node, makers, producers)


def _maker(
    graph: Graph, value: Value, node: Node, producers: dict[Value, Node], users: dict[Value, list[Node]]
) -> Node | None:
    """The convolution or product that makes a value for this node alone."""
    maker = producers.get(value)
    if maker is None or not isinstance(maker.work, Convolution | Linear):
        return None
    return maker if graph.single_user(value, users) is node else None


def _add(graph: Graph, node: Node, makers: list[Node | None], producers: dict[Value, Node]) -> None:
    shapes = {value.shape for value in (*node.inputs, node.output)}
    free = [each for each in makers if each is not None and each.addend is None]
    if len(shapes) > 1 or not free or any(value.constant is not None for value in node.inputs):
        return
    maker = max(free, key=graph.nodes.index)
    maker.addend = next(value for value in node.inputs if value is not maker.output)
    if maker.fused.activation != Activation.NONE:
        maker.fused = replace(maker.fused, addend_last=True)
    _take(graph, maker, node, producers)


def _take(graph: Graph, maker: Node, node: Node, producers: dict[Value, Node]) -> None:
    """The maker stands where the node stood, which is after everything that both read."""
    maker.output = node.output
    producers[node.output] = maker
    graph.nodes.remove(maker)
    graph.nodes[graph.nodes.index(node)] = maker
