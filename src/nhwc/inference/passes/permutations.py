"""Reorderings of dimensions move behind pointwise operations, so that these meet the product that they belong to."""

from __future__ import annotations

from dataclasses import replace

from nhwc.inference.graph import Affine, Graph, Node, Value, View
from nhwc.inference.operations import Elementwise


def sink(graph: Graph) -> None:
    """pointwise(permute(x), y) becomes permute(pointwise(x, back(y))), again and again; permute(back(x)) becomes x."""
    backs: set[Value] = set()  # of the other operands: moved as well, they would undo what is won
    while _sunk(graph, backs):
        pass
    _cancel(graph)


def _sunk(graph: Graph, backs: set[Value]) -> bool:
    users = graph.users()
    for node in graph.nodes:
        view = node.work
        if not isinstance(view, View) or view.permutation is None or node.output in backs:
            continue
        user = graph.single_user(node.output, users)
        if user is not None and _is_movable(user, node.output):
            backs |= _exchange(graph, node, view.permutation, user)
            return True
    return False


def _is_movable(user: Node, permuted: Value) -> bool:
    if not isinstance(user.work, Affine | Elementwise) or not user.is_plain or user.output.shape != permuted.shape:
        return False
    rank = len(permuted.sizes)
    return all(len(each.sizes) == rank or each.constant is not None for each in user.inputs)


def _exchange(graph: Graph, node: Node, permutation: tuple[int, ...], user: Node) -> set[Value]:
    """Let the permutation follow its user; the values of the views that the user's other operands got."""
    back = inverse(permutation)
    before: list[Node] = []
    inputs = []
    for value in user.inputs:
        if value is node.output:
            inputs.append(node.inputs[0])
        elif value.constant is not None:
            constant = value.constant
            full = constant.view((1,) * (len(back) - constant.dim()) + tuple(constant.shape)).permute(back)
            inputs.append(replace(value, shape=tuple(full.shape), constant=full))
        else:
            seen = Value(f"{value.name}.back", tuple(value.sizes[dim] for dim in back), value.dtype)
            before.append(Node(View.permuting(back), [value], seen, path=user.path, source=user.source))
            inputs.append(seen)
    if isinstance(user.work, Affine):
        user.work = replace(user.work, dim=permutation[user.work.dim])
    user.inputs = inputs
    result = user.output
    user.output = Value(f"{result.name}.moved", tuple(result.sizes[dim] for dim in back), result.dtype)
    after = Node(View.permuting(permutation), [user.output], result, path=user.path, source=user.source)
    place = graph.nodes.index(user)
    graph.nodes[place : place + 1] = [*before, user, after]
    graph.nodes.remove(node)
    return {each.output for each in before}


def inverse(permutation: tuple[int, ...]) -> tuple[int, ...]:
    """What undoes a permutation.

    >>> inverse((0, 2, 3, 1))
    (0, 3, 1, 2)
    """
    return tuple(permutation.index(dim) for dim in range(len(permutation)))


def _cancel(graph: Graph) -> None:
    producers = graph.producers()
    for node in graph.nodes:
        source = producers.get(node.inputs[0]) if isinstance(node.work, View) and node.work.permutation else None
        if source is None or not isinstance(source.work, View) or source.work.permutation is None:
            continue
        assert isinstance(node.work, View)
        assert node.work.permutation is not None
        both = tuple(source.work.permutation[dim] for dim in node.work.permutation)
        if both == tuple(range(len(both))):
            graph.replace(node.output, source.inputs[0])
