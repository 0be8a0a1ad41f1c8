"""New weights for an engine that stands: captured and compared, folded and packed again, the choices as they were."""

from __future__ import annotations

import copy
import ctypes
import operator
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

import torch
from torch.fx import Node as FxNode
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from nhwc.errors import EngineError
from nhwc.inference import blocks, capture, narrowing
from nhwc.inference.building import Plan, plan, runner
from nhwc.inference.choosing import Choice, Chooser
from nhwc.inference.graph import Graph
from nhwc.inference.items import Item
from nhwc.inference.loaded import Loaded
from nhwc.inference.specialization import Specialization, graph_of
from nhwc.inference.steps.registry import Candidate, Request
from nhwc.inference.turns import Lock
from nhwc.progress import quiet


def refreshed(of: Specialization | Loaded, model: torch.nn.Module) -> Specialization:
    """The same with the weights of another state of the model; ``of`` stays as it is.

    Raises EngineError where the model computes something else than the one that was captured, or has other shapes.
    """
    if isinstance(of, Loaded):
        raise EngineError(
            "the engine was released from its model or loaded from a file, and holds packed weights alone; "
            "build it again from the model"
        )
    for node in of.captured.names:
        _require_weight(of, model, node)
    flat: list[Any] = list(of.captured.fixed)
    for place, tensor in zip(of.tensors, of.example, strict=True):
        flat[place] = tensor
    args, kwargs = pytree.tree_unflatten(flat, of.captured.in_spec)
    found, graph = graph_of(model, args, kwargs)
    _require_same_operators(of.captured, found)
    narrowing.allow(graph, narrowing.allowed(of.graph))
    with torch.no_grad():
        blocks.repeat(graph, of.joined)
        _require_alike(of.graph, graph)
        nodes = dict(zip(of.graph.nodes, graph.nodes, strict=True))
        values = dict(zip(of.graph.inputs, graph.inputs, strict=True))
        fresh = copy.copy(of)
        fresh.captured, fresh.graph = found, graph
        fresh.strides = {values[value]: strides for value, strides in of.strides.items()}
        fresh.learned = {nodes[node]: strides for node, strides in of.learned.items()}
        fresh.plans, fresh.runners = {}, {}
        fresh._lock = Lock()
        for threads, old in list(of.plans.items()):  # a call on another number of threads may add one meanwhile
            made = plan(graph, fresh.strides, threads, of.exact, fresh.learned)
            made.exact |= {nodes[node] for node in old.exact}
            fresh.runners[threads] = runner(made, threads, _Kept(old), quiet)
            fresh.plans[threads] = made
    return fresh


def _require_weight(of: Specialization, model: torch.nn.Module, node: FxNode) -> None:
    name, old = of.captured.names[node], of.captured.constants[node]
    try:
        new: Any = operator.attrgetter(name)(model)
    except AttributeError:
        raise EngineError(f"the model has no {name}, and the one that the engine was built from has") from None
    if not isinstance(new, torch.Tensor) or new.shape != old.shape or new.dtype != old.dtype:
        found = f"{new.dtype} {tuple(new.shape)}" if isinstance(new, torch.Tensor) else type(new).__name__
        raise EngineError(
            f"{name} is {found}, and the engine was built for {old.dtype} {tuple(old.shape)}; build it again"
        )


def _require_same_operators(old: capture.Captured, new: capture.Captured) -> None:
    """Raise EngineError with the first operator, argument, constant or output that differs."""
    for one, other in zip_longest(_operators(old), _operators(new), fillvalue=("nothing", "")):
        if one[0] != other[0]:
            raise EngineError(
                f"the model has {other[0]}{other[1]}, and the one that the engine was built from has {one[0]}{one[1]} "
                "there; build the engine again"
            )
    if old.out_spec != new.out_spec:
        raise EngineError("the model nests its outputs in another way; build the engine again")


def _operators(of: capture.Captured) -> list[tuple[str, str]]:
    """For every node what it computes from which earlier ones, and where it comes from."""
    numbers = {node: f"%{number}" for number, node in enumerate(of.nodes)}
    found = []
    for node in of.nodes:
        path = capture.module_path(node)
        if node.op == "placeholder":
            value = node.meta.get("val")
            if isinstance(value, torch.Tensor):
                what = (
                    f"a {value.dtype} of shape {tuple(value.shape)} ({'weights' if node in of.constants else 'given'})"
                )
            else:
                what = f"the argument {value!r}"
            path = of.names.get(node, path)
        else:
            arguments: Any = map_arg((node.args, node.kwargs), numbers.__getitem__)
            what = f"{node.target}{arguments[0]!r}{arguments[1] or ''}".replace("'", "")
        found.append((what, f" in {path}" if path else ""))
    return found


def _require_alike(old: Graph, new: Graph) -> None:
    for one, other in zip_longest(old.nodes, new.nodes):
        if one is None or other is None or type(one.work) is not type(other.work):
            path = (other or one).path or "the model"
            raise EngineError(
                f"with these weights {path} folds into other operations than before, as where a batch norm before a "
                "padded convolution shifts and did not shift when the engine was built; build the engine again"
            )


class _Kept(Chooser):
    """Takes the choices of an earlier plan, in the order of its items."""

    def __init__(self, old: Plan) -> None:
        self._choices: Iterator[tuple[Item, Choice]] = iter(old.choices.items())

    def choose(
        self,
        request: Request,
        found: Sequence[Candidate],
        table: ctypes.Array[ctypes.c_void_p],
        refill: Callable[[], None],
    ) -> Choice:
        del table, refill
        item, choice = next(self._choices, (None, None))
        for each in found:
            if choice is not None and item is not None and each.label == choice.label:
                return Choice(each.label, each.build(), choice.times_ms, request.exact)
        raise EngineError(
            f"with these weights no step stands for {type(request.operation).__name__} as before; "
            "build the engine again"
        )
