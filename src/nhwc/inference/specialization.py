"""The engine for inputs of certain shapes: captured once, made ready for every number of threads that calls it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from nhwc.errors import EngineError
from nhwc.inference import blocks, capture
from nhwc.inference.building import Plan, plan, runner
from nhwc.inference.choosing import Chooser
from nhwc.inference.graph import Graph, Node
from nhwc.inference.importing import imported
from nhwc.inference.passes import simplify
from nhwc.inference.run import Runner, learned_strides
from nhwc.inference.turns import Lock
from nhwc.progress import Progress

Signature = tuple[Any, ...]
Capturing = Callable[
    [torch.nn.Module, Sequence[Any], Mapping[str, Any]],
    tuple[capture.Captured, Graph],
]


def signature_of(flat: Sequence[Any]) -> Signature:
    """What an input must share with the example: shapes and dtypes of tensors, other values themselves.

    A tensor that is not plain memory of the CPU is like no example.
    """
    return tuple(_tensor_signature(each) if isinstance(each, torch.Tensor) else _comparable(each) for each in flat)


def _tensor_signature(tensor: torch.Tensor) -> tuple[Any, ...]:
    plain = tensor.device.type == "cpu" and tensor.layout == torch.strided and not _dispatches(tensor)
    return (tensor.shape, tensor.dtype) if plain else (tensor.shape, tensor.dtype, tensor.device.type, tensor.layout)


def _dispatches(tensor: torch.Tensor) -> bool:
    """Whether it is of a subclass that runs operators itself, such as FakeTensor, and need not have memory."""
    return type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__


def _strides(example: torch.Tensor) -> tuple[int, ...]:
    """Those of the example, or contiguous ones where its elements share memory, which nothing could be copied to."""
    extent = 1 + sum((size - 1) * stride for size, stride in zip(example.shape, example.stride(), strict=True))
    return tuple(example.stride() if extent >= example.numel() else example.contiguous().stride())


def _comparable(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        return id(value)
    return type(value), value  # 1, 1.0 and True are different arguments


def graph_of(model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[capture.Captured, Graph]:
    """The model's graph for these arguments, simplified. Raises EngineError where it cannot be captured."""
    program = capture.export(model, args, kwargs)
    found = capture.captured(program)
    graph = imported(found, program.graph_module)
    if graph is None:
        program = capture.functional(program)
        found = capture.captured(program)
        graph = imported(found, program.graph_module)
        if graph is None:
            raise EngineError("the model writes into memory that it reads by another name, and torch cannot undo that")
    simplify(graph)
    return found, graph


class Specialization:
    """One set of shapes. strides: of the example's tensors, which inputs of other strides are copied to.

    capturing: gives the model's graph, by default ``graph_of``. build_s: seconds spent on making it ready so far.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        chooser: Chooser,
        exact: bool,
        progress: Progress,
        capturing: Capturing | None = None,
    ) -> None:
        began = time.perf_counter()
        progress("capturing", 0, 1)
        self.captured, self.graph = (capturing or graph_of)(model, args, kwargs)
        progress("capturing", 1, 1)
        flat = pytree.tree_leaves((tuple(args), dict(kwargs)))
        self.signature = signature_of(flat)
        self.chooser, self.exact, self.progress = chooser, exact, progress
        self.tensors = [place for place, each in enumerate(self.captured.arguments) if each is not None]
        self.example = [flat[place] for place in self.tensors]
        values = self.graph.inputs
        self.strides = {
            value: _strides(flat[place]) for value, place in zip(values, self.tensors, strict=True) if value.is_placed
        }
        self.plans: dict[int, Plan] = {}
        self.runners: dict[int, Runner] = {}
        self.learned: dict[Node, tuple[int, ...]] = {}
        self.joined: list[tuple[int, ...]] = []
        self.build_s = time.perf_counter() - began
        self._lock = Lock()

    def ready(self, threads: int) -> Runner:
        """The runner for a number of threads, made at its first use."""
        found = self.runners.get(threads)
        if found is None:
            with self._lock:
                found = self.runners.get(threads) or self._made(threads)
        return found

    def _made(self, threads: int) -> Runner:
        began = time.perf_counter()
        with torch.no_grad():
            if not self.plans:
                self.joined = blocks.fuse(self.graph, threads, self.exact, self.chooser)
            planned = plan(self.graph, self.strides, threads, self.exact, self.learned)
            if any(not item.is_native for item in planned.placement.items) and not self.learned:
                self.learned = learned_strides(
                    planned.ports, planned.placement.items, planned.arena_bytes, self.example
                )
                if self.learned:
                    planned = plan(self.graph, self.strides, threads, self.exact, self.learned)
            # what was given up for accuracy stays so on any number of threads
            planned.exact |= {node for each in self.plans.values() for node in each.exact}
            made = runner(planned, threads, self.chooser, self.progress)
        self.plans[threads], self.runners[threads] = planned, made
        self.build_s += time.perf_counter() - began
        return made

    def __call__(self, flat: Sequence[Any]) -> list[Any]:
        """The flattened outputs for flattened arguments that have the signature."""
        return self.ready(torch.get_num_threads())([flat[place] for place in self.tensors])
