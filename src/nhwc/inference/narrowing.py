"""Weights that may be kept in 16 bits: of linear layers, which read each weight once for a few rows."""

from __future__ import annotations

from dataclasses import replace

import torch

from nhwc.engine_report import FLOOR
from nhwc.inference.building import Plan
from nhwc.inference.graph import Graph
from nhwc.inference.operations import Linear

#: Half a unit in the last place: what rounding a weight changes at most, relative to it.
ROUNDING = {torch.bfloat16: 2.0**-9, torch.float16: 2.0**-11}


def allow(graph: Graph, narrow: torch.dtype | None) -> None:
    """Let the linear layers of a graph keep their weights in a type of ROUNDING; those that fit it."""
    for node in graph.nodes:
        if narrow is not None and isinstance(node.work, Linear) and _fits(node.work.weight, narrow):
            node.work = replace(node.work, narrow=narrow)


def allowed(graph: Graph) -> torch.dtype | None:
    """The type that ``allow`` gave a graph."""
    found = (node.work.narrow for node in graph.nodes if isinstance(node.work, Linear))
    return next((each for each in found if each is not None), None)


def error_floor(of: Plan) -> float:
    """The error, relative to an output's greatest value, below which accuracy asks for nothing: that of the widest
    rounding which the plan's steps chose.
    """
    works = [item.work for item, choice in of.choices.items() if choice.label.startswith("narrow")]
    return max((ROUNDING[each.narrow] for each in works if isinstance(each, Linear) and each.narrow), default=FLOOR)


def _fits(weight: torch.Tensor, narrow: torch.dtype) -> bool:
    return bool(weight.to(narrow).isfinite().all())
