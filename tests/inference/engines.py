"""Small engines for tests: no timing, nothing kept on disk."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import torch
from torch.utils import _pytree as pytree

from nhwc.inference.choosing import Chooser
from nhwc.inference.graph import Call, Graph, View
from nhwc.inference.measurements import Measurements
from nhwc.inference.module import Engine
from nhwc.inference.specialization import Specialization, graph_of


def chooser(budget_s: float = 0.0) -> Chooser:
    return Chooser(Measurements("a test", None), budget_s)


def specialized(model: torch.nn.Module, *args: Any, exact: bool = False, budget_s: float = 0.0) -> Specialization:
    made = Specialization(model, args, {}, chooser(budget_s), exact, lambda *_: None)
    made.ready(torch.get_num_threads())
    return made


def fast(model: torch.nn.Module, *args: Any, exact: bool = False, budget_s: float = 0.0) -> Engine:
    return Engine(model, [specialized(model, *args, exact=exact, budget_s=budget_s)])


def kinds(graph: Graph) -> Counter[str]:
    """How many nodes of every kind a graph has."""

    def kind(work: Any) -> str:
        if isinstance(work, Call):
            return work.name
        return work.kind if isinstance(work, View) else type(work).__name__

    return Counter(kind(node.work) for node in graph.nodes)


def kinds_of(model: torch.nn.Module, *args: Any) -> Counter[str]:
    return kinds(graph_of(model, args, {})[1])


def with_statistics(model: torch.nn.Module) -> torch.nn.Module:
    """In evaluation mode, with batch norms that do something, and parameters of the test's seed, not of an import."""
    for module in model.modules():
        if callable(reset := getattr(module, "reset_parameters", None)):
            reset()
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
    return model.eval()


def errors(engine: torch.nn.Module, model: torch.nn.Module, *args: Any) -> tuple[float, float]:
    """The engine's and eager's largest error against float64, relative to each output's greatest value."""

    def wide(each: Any) -> Any:
        return each.double() if isinstance(each, torch.Tensor) and each.is_floating_point() else each

    with torch.no_grad():
        exact = _floats(copy.deepcopy(model).double()(*pytree.tree_map(wide, args)))
        eager, ours = _floats(model(*args)), _floats(engine(*args))
    assert [each.shape for each in ours] == [each.shape for each in eager]
    return _worst(ours, exact), _worst(eager, exact)


def _floats(outputs: Any) -> list[torch.Tensor]:
    return [each for each in pytree.tree_leaves(outputs) if isinstance(each, torch.Tensor) and each.is_floating_point()]


def _worst(results: list[torch.Tensor], exact: list[torch.Tensor]) -> float:
    pairs = [(one.double(), other) for one, other in zip(results, exact, strict=True) if other.numel()]
    return max(((a - b).abs().max() / b.abs().max().clamp_min(1e-30)).item() for a, b in pairs)


def assert_right(model: torch.nn.Module, *args: Any, engine: torch.nn.Module | None = None) -> None:
    """The engine's error is at most four times eager's, which counts as at least a few units in the last place."""
    ours, eager = errors(engine or fast(model, *args), model, *args)
    assert ours <= 4 * max(eager, 4 * torch.finfo(torch.float32).eps), (ours, eager)
