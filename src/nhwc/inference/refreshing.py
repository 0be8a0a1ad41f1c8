"""New weights for an engine that stands: captured once, folded and packed again, the choices as they were."""

from __future__ import annotations

import copy
import ctypes
import operator
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from nhwc.errors import EngineError
from nhwc.inference import blocks, capture
from nhwc.inference.building import Plan, plan, runner
from nhwc.inference.choosing import Choice, Chooser
from nhwc.inference.graph import Graph
from nhwc.inference.importing import imported
from nhwc.inference.items import Item
from nhwc.inference.loaded import Loaded
from nhwc.inference.passes import simplify
from nhwc.inference.specialization import Specialization
from nhwc.inference.steps.registry import Candidate, Request


def refreshed(of: Specialization | Loaded, model: torch.nn.Module) -> Specialization:
    """The same with the weights of another state of the model; ``of`` stays as it is.

    Raises EngineError where the model has other weights than the one that was captured.
    """
    if isinstance(of, Loaded):
        raise EngineError(
            "the engine was released from its model or loaded from a file, and holds packed weights alone; "
            "build it again from the model"
        )
    capture.require_evaluation(model)
    constants = {**of.captured.constants, **{node: _weight(of, model, node) for node in of.captured.names}}
    found = replace(of.captured, constants=constants)
    with torch.no_grad():
        graph = imported(found, found.root)
        assert graph is not None, "it was made functional when it was captured"
        simplify(graph)
        blocks.repeat(graph, of.joined)
        _require_alike(of.graph, graph)
        nodes = dict(zip(of.graph.nodes, graph.nodes, strict=True))
        values = dict(zip(of.graph.inputs, graph.inputs, strict=True))
        fresh = copy.copy(of)
        fresh.captured, fresh.graph = found, graph
        fresh.strides = {values[value]: strides for value, strides in of.strides.items()}
        fresh.learned = {nodes[node]: strides for node, strides in of.learned.items()}
        fresh.plans, fresh.runners = {}, {}
        fresh._lock = threading.Lock()
        for threads, old in of.plans.items():
            made = plan(graph, fresh.strides, threads, of.exact, fresh.learned)
            made.exact |= {nodes[node] for node in old.exact}
            fresh.runners[threads] = runner(made, threads, _Kept(old), _quiet)
            fresh.plans[threads] = made
    return fresh


def _weight(of: Specialization, model: torch.nn.Module, node: Any) -> torch.Tensor:
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
    return new.detach().clone()


def _require_alike(old: Graph, new: Graph) -> None:
    kinds = [[type(node.work) for node in graph.nodes] for graph in (old, new)]
    if kinds[0] != kinds[1]:
        raise EngineError("with these weights the model folds into other operations; build the engine again")


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


def _quiet(_stage: str, _done: int, _total: int) -> None:
    pass
