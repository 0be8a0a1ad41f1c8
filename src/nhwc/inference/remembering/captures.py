"""A captured model as JSON, without its weights, and back: what torch.export takes a second for."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Graph, GraphModule
from torch.fx import Node as FxNode
from torch.utils import _pytree as pytree

from nhwc.errors import EngineError
from nhwc.inference.capture import Captured, module_path, source_line
from nhwc.inference.graph import Call
from nhwc.inference.saving.arguments import Reader, Writer, target_name, target_of
from nhwc.inference.saving.constants import Constants, Kept

#: Of constants that a model's code makes, all together.
_MOST_ELEMENTS = 65536


def written(captured: Captured) -> dict[str, Any]:
    """A model as it was captured. Raises EngineError for what is no data: sizes that are not known, large constants,
    operators of other libraries.
    """
    numbers = {node: number for number, node in enumerate(captured.nodes)}
    writer = _NodeWriter(numbers)
    constants = [(node, held) for node, held in captured.constants.items() if node not in captured.names]
    if sum(held.numel() for _, held in constants) > _MOST_ELEMENTS:
        raise EngineError("the model's code holds large tensors that are neither parameters nor buffers")
    return {
        "nodes": [_row(node, writer) for node in captured.nodes],
        "weights": [[numbers[node], name] for node, name in captured.names.items()],
        "constants": [[numbers[node], writer.value(held.dtype, None), held.tolist()] for node, held in constants],
        "arguments": [None if node is None else numbers[node] for node in captured.arguments],
        "fixed": [writer.value(each, None) for each in captured.fixed],
        "outputs": [writer.value(each, None) for each in captured.outputs],
        "in_spec": pytree.treespec_dumps(captured.in_spec),
        "out_spec": pytree.treespec_dumps(captured.out_spec),
    }


def read(document: Mapping[str, Any], model: torch.nn.Module) -> Captured:
    """What ``written`` wrote, with the weights of this model. Raises AttributeError where it does not have them."""
    graph = Graph()
    reader = _NodeReader()
    for row in document["nodes"]:
        reader.nodes.append(_node(graph, row, reader))
    names = {reader.nodes[number]: name for number, name in document["weights"]}
    arguments = tuple(None if number is None else reader.nodes[number] for number in document["arguments"])
    constants = {node: operator.attrgetter(name)(model).detach().clone() for node, name in names.items()}
    for number, dtype, held in document["constants"]:
        constants[reader.nodes[number]] = torch.tensor(held, dtype=reader.value(dtype), device="cpu")
    return Captured(
        tuple(reader.nodes),
        constants,
        frozenset(names),
        names,
        GraphModule(torch.nn.Module(), Graph()),
        arguments,
        tuple(reader.value(each) for each in document["fixed"]),
        tuple(reader.value(each) for each in document["outputs"]),
        pytree.treespec_loads(document["in_spec"]),
        pytree.treespec_loads(document["out_spec"]),
    )


class _NodeWriter(Writer):
    """Arguments of nodes: other nodes by number."""

    def __init__(self, numbers: Mapping[FxNode, int]) -> None:
        super().__init__(Constants(), keeps_weights=False)
        self.numbers = numbers

    def value(self, value: Any, call: Call | None) -> Any:
        if isinstance(value, FxNode):
            return {"node": self.numbers[value]}
        if isinstance(value, torch.Tensor):
            raise EngineError("a captured operator holds a tensor")
        return super().value(value, call)

    def example(self, value: Any) -> Any:
        """What a node gave while it was captured: tensors by shape, strides and dtype."""
        if isinstance(value, torch.Tensor):
            sizes = [*value.shape, *value.stride()]
            if not all(type(size) is int for size in sizes):
                raise EngineError("a captured tensor has a size that only a run can tell")
            return {"given": [sizes, self.value(value.dtype, None)]}
        if isinstance(value, list | tuple):
            return [self.example(each) for each in value]
        return self.value(value, None)


class _NodeReader(Reader):
    def __init__(self) -> None:
        super().__init__(Kept(()))
        self.nodes: list[FxNode] = []

    def value(self, written: Any) -> Any:
        if isinstance(written, dict) and "node" in written:
            return self.nodes[written["node"]]
        return super().value(written)

    def example(self, written: Any) -> Any:
        if isinstance(written, list):
            return [self.example(each) for each in written]
        if isinstance(written, dict) and "given" in written:
            sizes, dtype = written["given"]
            half = len(sizes) // 2
            return torch.empty_strided(sizes[:half], sizes[half:], dtype=self.value(dtype), device="meta")
        return self.value(written)


def _row(node: FxNode, writer: _NodeWriter) -> list[Any]:
    if node.op not in {"placeholder", "call_function", "output"}:
        raise EngineError(f"the captured model holds a {node.op}")
    target = target_name(node.target) if callable(node.target) else node.target
    args = [writer.value(each, None) for each in node.args]
    kwargs = [[key, writer.value(each, None)] for key, each in node.kwargs.items()]
    example = writer.example(node.meta.get("val"))
    return [node.op, node.name, target, args, kwargs, example, module_path(node), source_line(node)]


def _node(graph: Graph, row: list[Any], reader: _NodeReader) -> FxNode:
    kind, name, target, args, kwargs, example, path, source = row
    called = target_of(target) if kind == "call_function" else target
    given = tuple(reader.value(each) for each in args)
    node = graph.create_node(kind, called, given, {key: reader.value(each) for key, each in kwargs}, name)
    node.meta["val"] = reader.example(example)
    if path:
        node.meta["nn_module_stack"] = {path: (path, "")}
    node.meta["stack_trace"] = source
    return node
