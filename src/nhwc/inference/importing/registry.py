"""Which function makes nodes of our own out of an operator of torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import Node as FxNode

from nhwc.errors import RegistryError
from nhwc.inference.capture import module_path, source_line
from nhwc.inference.graph import Node, Slot, Value, Work


class Builder:
    """Makes nodes while a captured graph is walked.

    nodes: those made so far. known: what every node of the captured graph has become: a Value, or a list of them.
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.known: dict[FxNode, Any] = {}
        self._count = 0

    def arguments(self, node: FxNode) -> dict[str, Any]:
        """The arguments of an operator by name, with defaults, Values in place of nodes."""
        assert isinstance(node.target, torch._ops.OpOverload)
        found: dict[str, Any] = {}
        for position, parameter in enumerate(node.target._schema.arguments):
            if position < len(node.args) and not parameter.kwarg_only:
                found[parameter.name] = self.resolved(node.args[position])
            elif parameter.name in node.kwargs:
                found[parameter.name] = self.resolved(node.kwargs[parameter.name])
            else:
                found[parameter.name] = parameter.default_value
        return found

    def resolved(self, argument: Any) -> Any:
        """An argument with what its nodes have become."""
        return torch.fx.node.map_arg(argument, lambda each: self.known[each])

    def emit(
        self,
        work: Work,
        inputs: list[Value],
        node: FxNode,
        shape: tuple[int, ...] | None = None,
        *,
        axis: int | None = None,
    ) -> Value:
        """Append a node; its output, float32, has the captured node's shape unless another is given."""
        if shape is None:
            shape = tuple(node.meta["val"].shape)
        output = self.append(work, inputs, node, Value(self.named(node), shape, torch.float32))
        self.nodes[-1].axis = axis
        return output

    def append(self, work: Work, inputs: list[Value], node: FxNode, output: Value) -> Value:
        """Append a node with an output of any kind."""
        self.nodes.append(Node(work, inputs, output, path=module_path(node), source=source_line(node)))
        return output

    def named(self, node: FxNode) -> str:
        self._count += 1
        return f"{node.name}.{self._count}"


#: Gives what the captured node becomes, or None where torch must run it.
Importer = Callable[[Builder, FxNode, Mapping[str, Any]], Any]

_IMPORTERS: dict[str, Importer] = {}


def importer(*operators: str) -> Callable[[Importer], Importer]:
    """Register the importer of overloads, by names as torch prints them ("aten.conv2d.default").

    Names and not overloads, since not every supported torch has every one.
    """

    def register(function: Importer) -> Importer:
        for name in operators:
            if name in _IMPORTERS:
                raise RegistryError(f"{name} has two importers")
            _IMPORTERS[name] = function
        return function

    return register


def importer_of(node: FxNode) -> Importer | None:
    """The importer of a captured node's operator, where there is one."""
    return _IMPORTERS.get(str(node.target))


def slotted(argument: Any, inputs: list[Value]) -> Any:
    """An argument with a Slot for every Value, which is appended to ``inputs``; constants stay tensors."""
    if isinstance(argument, Value):
        if argument.constant is not None:
            return argument.constant
        if argument not in inputs:
            inputs.append(argument)
        return Slot(inputs.index(argument))
    if isinstance(argument, list | tuple):
        return type(argument)(slotted(each, inputs) for each in argument)
    if isinstance(argument, dict):
        return {key: slotted(each, inputs) for key, each in argument.items()}
    return argument
