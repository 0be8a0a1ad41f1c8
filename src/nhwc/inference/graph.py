"""The engine's graph: values, and the nodes that make them, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from nhwc.inference.operations import Fused, Operation


@dataclass(eq=False)
class Value:
    """What flows through the graph: a tensor whose shape is known, or anything else (shape None).

    constant: its content, where it is known when the engine is built.
    """

    name: str
    shape: tuple[int, ...] | None
    dtype: torch.dtype | None
    constant: torch.Tensor | None = None

    @property
    def is_placed(self) -> bool:
        """Whether it is a float32 tensor of a known shape: what compiled steps read and write."""
        return self.shape is not None and self.dtype == torch.float32

    @property
    def sizes(self) -> tuple[int, ...]:
        """Its shape, which must be known."""
        assert self.shape is not None, f"{self.name} has no fixed shape"
        return self.shape


@dataclass(frozen=True, eq=False)
class View:
    """The same memory in another shape or order.

    apply: gives the view of a tensor by stride arithmetic alone, and raises RuntimeError where the strides need a copy.
    kind: for reports ("permute", "reshape"). permutation: where it only reorders dimensions, the source's dimension for
    each of the result's.
    """

    apply: Callable[[torch.Tensor], torch.Tensor]
    kind: str
    permutation: tuple[int, ...] | None = None

    @classmethod
    def permuting(cls, permutation: tuple[int, ...]) -> View:
        """A view in another order of dimensions."""
        return cls(lambda tensor: tensor.permute(permutation), "permute", permutation)


@dataclass(frozen=True, eq=False)
class Affine:
    """x scale + shift per entry of dimension ``dim``, in float64 (C,): a batch norm, a layer scale."""

    scale: torch.Tensor
    shift: torch.Tensor
    dim: int


@dataclass(frozen=True)
class Join:
    """Concatenation along ``dim``."""

    dim: int


@dataclass(frozen=True)
class Slot:
    """The place of an input among the arguments of a call."""

    index: int


@dataclass(frozen=True, eq=False)
class Call:
    """A call that torch runs: what has no operation here. args, kwargs: with a Slot for each input."""

    target: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.target) if isinstance(self.target, torch._ops.OpOverload) else self.target.__name__


Work = Operation | Affine | Join | View | Call


@dataclass(eq=False)
class Node:
    """One piece of work: its inputs, its one output, and what is fused into it.

    axis: the dimension along which it works, of products, softmax and layer norm. path: the module that it comes from,
    as named_modules has it. source: file and line of the user's code.
    """

    work: Work
    inputs: list[Value]
    output: Value
    fused: Fused = field(default_factory=Fused)
    addend: Value | None = None
    axis: int | None = None
    path: str = ""
    source: str = ""

    @property
    def reads(self) -> tuple[Value, ...]:
        """Everything that must be there before it runs."""
        return tuple(self.inputs) if self.addend is None else (*self.inputs, self.addend)

    @property
    def is_plain(self) -> bool:
        """Whether nothing is fused into it."""
        return self.addend is None and self.fused.activation == 0


@dataclass(eq=False)
class Graph:
    """inputs: the tensors among the flattened arguments, in order. outputs: Values, or Python constants."""

    inputs: list[Value]
    nodes: list[Node]
    outputs: list[Any]

    def output_values(self) -> Iterator[Value]:
        return (each for each in self.outputs if isinstance(each, Value))

    def producers(self) -> dict[Value, Node]:
        return {node.output: node for node in self.nodes}

    def users(self) -> dict[Value, list[Node]]:
        """Value → the nodes that read it, once for each reading; outputs of the graph are not among them."""
        found: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for value in node.reads:
                found.setdefault(value, []).append(node)
        return found

    def single_user(self, value: Value, users: dict[Value, list[Node]]) -> Node | None:
        """The one node that reads a value, where nothing else does and the graph does not return it."""
        found = users.get(value, [])
        return found[0] if len(found) == 1 and value not in set(self.output_values()) else None

    def replace(self, old: Value, new: Value) -> None:
        """Everything that read ``old`` reads ``new``."""
        for node in self.nodes:
            node.inputs = [new if each is old else each for each in node.inputs]
            node.addend = new if node.addend is old else node.addend
        self.outputs = [new if each is old else each for each in self.outputs]

    def prune(self) -> None:
        """Drop what nobody reads."""
        needed = set(self.output_values())
        kept: list[Node] = []
        for node in reversed(self.nodes):
            if node.output in needed or _acts(node):
                needed.update(node.reads)
                kept.append(node)
        self.nodes = kept[::-1]

    def check(self) -> None:
        """Raise AssertionError where a value is read before it is made, or made twice."""
        known = set(self.inputs)
        for node in self.nodes:
            for value in node.reads:
                assert value in known or value.constant is not None, f"{value.name} is read before it is made"
            assert node.output not in known, f"{node.output.name} is made twice"
            known.add(node.output)
        for value in self.output_values():
            assert value in known or value.constant is not None, f"the output {value.name} is not made"


def _acts(node: Node) -> bool:
    # an assertion on run-time sizes has no reader
    return isinstance(node.work, Call) and "assert" in node.work.name


def float_values(values: Iterable[Value]) -> bool:
    """Whether all are float32 of known shapes."""
    return all(value.is_placed for value in values)
