"""A captured graph becomes ours: constants computed, operators imported, the rest left to torch."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node as FxNode

from nhwc.inference.capture import Captured
from nhwc.inference.graph import Call, Graph, Value, View
from nhwc.inference.importing.constancy import constant_nodes, is_filled, stand_in
from nhwc.inference.importing.mutation import make_functional
from nhwc.inference.importing.registry import Builder, importer_of, slotted


def imported(captured: Captured, root: torch.nn.Module) -> Graph | None:
    """The graph of a captured model; None where in place operators need torch to make the program functional first.

    root: the module that the captured graph belongs to, which holds what its get_attr nodes name.
    """
    constant = constant_nodes(captured)
    if not make_functional(captured, constant):
        return None
    build = Builder()
    inputs: list[Value] = []
    for node in captured.nodes:
        if node.op == "placeholder":
            value = _placeholder(node, captured)
            build.known[node] = value
            if node in captured.arguments:
                inputs.append(value)
        elif node.op == "get_attr":
            held: Any = operator.attrgetter(str(node.target))(root)
            build.known[node] = _of_constant(node.name, held)
        elif node.op == "call_function":
            build.known[node] = _computed(build, node) if node in constant else _imported(build, node)
    outputs = _returned(build, captured)
    graph = Graph(inputs, build.nodes, outputs)
    graph.prune()
    graph.check()
    return graph


def _returned(build: Builder, captured: Captured) -> list[Any]:
    """The outputs; what two operators returned is two values, since eager may keep them apart."""
    returned: dict[Value, FxNode] = {}
    outputs: list[Any] = []
    for node in captured.outputs:
        held = build.known[node] if isinstance(node, FxNode) else node
        if isinstance(held, Value) and held.is_placed and returned.setdefault(held, node) is not node:
            held = build.emit(View(lambda tensor: tensor.view(tensor.shape), "apart"), [held], node)
        outputs.append(held)
    return outputs


def _placeholder(node: FxNode, captured: Captured) -> Value:
    if node in captured.constants:
        value: Value = _of_constant(node.name, captured.constants[node])
        return value
    return _described(node.name, node.meta.get("val"))


def _described(name: str, example: Any) -> Value:
    if isinstance(example, torch.Tensor) and all(isinstance(size, int) for size in example.shape):
        return Value(name, tuple(example.shape), example.dtype)
    return Value(name, None, None)


def _of_constant(name: str, held: Any) -> Any:
    """What is known now: a Value of every tensor in it, anything else as it is."""
    if isinstance(held, torch.Tensor):
        plain = held.detach()
        return Value(name, tuple(plain.shape), plain.dtype, plain)
    if isinstance(held, list | tuple):
        return [_of_constant(f"{name}.{place}", each) for place, each in enumerate(held)]
    return held


def _bare(argument: Any) -> Any:
    """An argument with the tensors of its constants."""
    if isinstance(argument, Value):
        return argument.constant
    if isinstance(argument, list | tuple):
        return type(argument)(_bare(each) for each in argument)
    return argument


def _computed(build: Builder, node: FxNode) -> Any:
    args, kwargs = list(node.args), dict(node.kwargs)
    if is_filled(node):
        first = args.pop(0)
        assert isinstance(first, FxNode)
        plain = [stand_in(first), *map(build.resolved, args)]
    else:
        plain = [_bare(build.resolved(each)) for each in args]
    assert callable(node.target)
    with torch.no_grad():
        result = node.target(*plain, **{key: _bare(build.resolved(each)) for key, each in kwargs.items()})
    return _of_constant(node.name, result)


def _imported(build: Builder, node: FxNode) -> Any:
    if node.target is operator.getitem:
        held = build.known[node.all_input_nodes[0]]
        if isinstance(held, list):
            return held[node.args[1]]  # type: ignore[index]
    fixed = all(_is_fixed(build.known[each]) for each in node.all_input_nodes)
    if fixed and isinstance(node.target, torch._ops.OpOverload) and _is_float(node.meta.get("val")):
        function = importer_of(node)
        result = None if function is None else function(build, node, build.arguments(node))
        if result is not None:
            return result
    return _called(build, node)


def _is_fixed(held: Any) -> bool:
    return not isinstance(held, Value) or held.shape is not None


def _is_float(example: Any) -> bool:
    if isinstance(example, torch.Tensor):
        return example.dtype == torch.float32 and all(isinstance(size, int) for size in example.shape)
    if isinstance(example, Sequence):
        return bool(example) and _is_float(example[0])
    return False


def _called(build: Builder, node: FxNode) -> Value:
    inputs: list[Value] = []
    args = tuple(slotted(build.resolved(each), inputs) for each in node.args)
    keywords: Mapping[str, Any] = {key: slotted(build.resolved(each), inputs) for key, each in node.kwargs.items()}
    assert callable(node.target)
    output = _described(build.named(node), node.meta.get("val"))
    return build.append(Call(node.target, args, dict(keywords)), inputs, node, output)
