"""Which captured operators depend on nothing that a call brings, so that they run once, when the engine is built."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Node as FxNode

from nhwc.inference.capture import Captured

#: They read nothing of their tensor but its size and type.
_FILLED = frozenset(
    f"aten.{name}"
    for name in (
        "new_zeros.default",
        "new_ones.default",
        "new_full.default",
        "zeros_like.default",
        "ones_like.default",
        "full_like.default",
    )
)
_METADATA = frozenset({"aten.sym_size.int"})


def constant_nodes(captured: Captured) -> set[FxNode]:
    """Placeholders of constants, and operators over constants alone."""
    found: set[FxNode] = set(captured.constants)
    for node in captured.nodes:
        if node.op == "get_attr":
            found.add(node)
        elif node.op == "call_function" and _repeats(node) and _is_static(node.meta.get("val")):
            read = () if is_filled(node) else node.all_input_nodes
            if all(each in found for each in read):
                found.add(node)
    return found


def is_filled(node: FxNode) -> bool:
    """Whether it makes a tensor like another, whose values do not matter."""
    return str(node.target) in _FILLED


def _repeats(node: FxNode) -> bool:
    """Whether it gives the same every time, and only computes."""
    if node.target is operator.getitem:
        return True
    if not isinstance(node.target, torch._ops.OpOverload) or "assert" in str(node.target):
        return False
    return torch.Tag.nondeterministic_seeded not in node.target.tags


def _is_static(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return all(isinstance(size, int) for size in value.shape)
    if isinstance(value, list | tuple):
        return all(_is_static(each) for each in value)
    return not isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool)


def stand_in(node: FxNode) -> torch.Tensor:
    """A tensor with the size and type of a captured node, its values not set."""
    held = node.meta["val"]
    return torch.empty(tuple(held.shape), dtype=held.dtype)
