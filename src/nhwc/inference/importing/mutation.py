"""In place operators made functional, where nothing looks at the memory that they write by another name."""

from __future__ import annotations

import operator

import torch
from torch.fx import Node as FxNode

from nhwc.errors import EngineError
from nhwc.inference.capture import Captured, source_line

_HIDDEN_ALIASES = ("dropout", "contiguous", "reshape", "flatten")  # their schemas do not tell that they may alias


def make_functional(captured: Captured, constant: set[FxNode]) -> bool:
    """Replace in place operators by functional ones in the captured graph; False where that would change results.

    Those among constants stay: they run once, on the memory that they name. Raises EngineError where the model writes
    into its own parameters or buffers.
    """
    order = {node: place for place, node in enumerate(captured.nodes)}
    roots: dict[FxNode, FxNode] = {}
    family: dict[FxNode, list[FxNode]] = {}
    for node in captured.nodes:
        root = _root(node, roots)
        roots[node] = root
        family.setdefault(root, []).append(node)
        written = _written(node)
        if written is None:
            continue
        if roots[written] in captured.owned:
            raise EngineError(f"the model writes into its own weights at {source_line(node) or node.name}")
        if not (_stays(node, family[root], constant, order) or _replaced(node, written, family[root], order)):
            return False
    return True


def _root(node: FxNode, roots: dict[FxNode, FxNode]) -> FxNode:
    if node.op != "call_function" or not node.all_input_nodes:
        return node
    first = node.all_input_nodes[0]
    if node.target is operator.getitem:
        return roots[first]
    if isinstance(node.target, torch._ops.OpOverload):
        aliases = any(each.alias_info is not None for each in node.target._schema.returns)
        if aliases or any(word in str(node.target) for word in _HIDDEN_ALIASES):
            return roots[first]
    return node


def _written(node: FxNode) -> FxNode | None:
    """The node whose memory an in place operator writes; None for any other operator."""
    if not isinstance(node.target, torch._ops.OpOverload) or not node.target._schema.is_mutable:
        return None
    parameter = node.target._schema.arguments[0]
    written = parameter.alias_info is not None and parameter.alias_info.is_write
    first = node.args[0] if written and node.args else None
    return first if isinstance(first, FxNode) else None


def _stays(node: FxNode, family: list[FxNode], constant: set[FxNode], order: dict[FxNode, int]) -> bool:
    if node not in constant:
        return False
    users = [user for each in family for user in each.users if order[user] < order[node]]
    return all(user in constant for user in users)


def _replaced(node: FxNode, written: FxNode, family: list[FxNode], order: dict[FxNode, int]) -> bool:
    """Make one operator functional; whether that was possible."""
    later = [
        user
        for each in family
        if each not in {node, written}
        for user in each.users
        if order[user] > order[node] and user is not node
    ]
    functional = _functional(node)
    if later or functional is None:
        return False
    node.target = functional
    written.replace_all_uses_with(node, delete_user_cb=lambda user: order[user] > order[node])
    return True


def _functional(node: FxNode) -> torch._ops.OpOverload | None:
    assert isinstance(node.target, torch._ops.OpOverload)
    namespace, name, overload = str(node.target).split(".")
    packet = getattr(getattr(torch.ops, namespace), name.removesuffix("_"), None) if name.endswith("_") else None
    found = getattr(packet, overload, None) if packet is not None else None
    return found if isinstance(found, torch._ops.OpOverload) else None
