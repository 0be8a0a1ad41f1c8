"""In place operators made functional, where nothing looks at the memory that they write by another name."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Node as FxNode
from torch.utils import _pytree as pytree

from nhwc.errors import EngineError
from nhwc.inference.capture import Captured, source_line

_HIDDEN_ALIASES = ("dropout", "contiguous", "reshape", "flatten")  # their schemas do not tell that they may alias


def make_functional(captured: Captured, constant: set[FxNode]) -> bool:
    """Replace in place operators by functional ones in the captured graph; False where that would change results.

    Those among constants stay: they run once, on the memory that they name. Raises EngineError where the model writes
    into its own parameters or buffers, or through views that their operators do not declare, as einsum's.
    """
    order = {node: place for place, node in enumerate(captured.nodes)}
    roots: dict[FxNode, FxNode] = {}
    family: dict[FxNode, list[FxNode]] = {}
    kin = _Kin()
    for node in captured.nodes:
        root = _root(node, roots)
        roots[node] = root
        family.setdefault(root, []).append(node)
        kin.add(node, root)
        if not _is_mutable(node):
            continue
        written = _written(node)
        if written is None:
            return False
        if roots[written] in captured.owned:
            raise EngineError(f"the model writes into its own weights at {source_line(node) or node.name}")
        if kin.is_doubtful(written):
            raise EngineError(
                f"the model writes at {source_line(node) or node.name} into memory that an operator shares with its "
                "input and does not declare as shared, which torch.export loses; write x = x.clone() before it"
            )
        if not (_stays(node, family[root], constant, order) or _replaced(node, written, family[root], order)):
            return False
    return True


class _Kin:
    """Nodes that may share memory, as far as schemas tell, and whether an operator is among them that tells nothing."""

    def __init__(self) -> None:
        self._parents: dict[FxNode, FxNode] = {}
        self._doubtful: set[FxNode] = set()

    def add(self, node: FxNode, root: FxNode) -> None:
        """node: the next in the graph's order. root: what it surely may share memory with, or itself."""
        self._parents[node] = node
        self._join(node, root)
        if _tells_nothing(node):
            for each in node.all_input_nodes:
                self._join(node, each)
            self._doubtful.add(self._head(node))

    def is_doubtful(self, node: FxNode) -> bool:
        return self._head(node) in self._doubtful

    def _head(self, node: FxNode) -> FxNode:
        while self._parents[node] is not node:
            node = self._parents[node]
        return node

    def _join(self, one: FxNode, other: FxNode) -> None:
        head, into = self._head(one), self._head(other)
        self._parents[head] = into
        if head in self._doubtful:
            self._doubtful.add(into)


def _tells_nothing(node: FxNode) -> bool:
    """Whether an operator gave a view of an input when it was captured, which its schema does not declare."""
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return False
    if any(each.alias_info is not None for each in node.target._schema.returns):
        return False
    if any(word in str(node.target) for word in _HIDDEN_ALIASES):
        return False
    made = _tensors(node.meta.get("val"))
    given = _tensors([each.meta.get("val") for each in node.all_input_nodes])
    # private, as of torch 2.11 to 2.14
    return any(torch._C._is_alias_of(one, other) for one in made for other in given)  # type: ignore[attr-defined]


def _tensors(held: Any) -> list[torch.Tensor]:
    return [each for each in pytree.tree_leaves(held) if isinstance(each, torch.Tensor)]


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


def _is_mutable(node: FxNode) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and bool(node.target._schema.is_mutable)


def _written(node: FxNode) -> FxNode | None:
    """The node whose memory an in place operator writes, where that is its first argument and nothing else."""
    assert isinstance(node.target, torch._ops.OpOverload)
    parameters = node.target._schema.arguments
    written = [place for place, each in enumerate(parameters) if each.alias_info and each.alias_info.is_write]
    first = node.args[0] if written == [0] and node.args else None
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
    if later or functional is None or not _keeps_type(node, functional):
        return False
    node.target = functional
    written.replace_all_uses_with(node, delete_user_cb=lambda user: order[user] > order[node])
    return True


def _keeps_type(node: FxNode, functional: torch._ops.OpOverload) -> bool:
    """Whether the functional operator gives the dtype that the in place one writes."""
    given = torch.fx.node.map_arg((node.args, node.kwargs), lambda each: each.meta.get("val"))
    held = node.args[0].meta.get("val") if isinstance(node.args[0], FxNode) else None
    tensors = _tensors(given)
    if not isinstance(held, torch.Tensor) or len(tensors) < len(node.all_input_nodes):
        return False
    if held.dtype == torch.float32 and all(each.dtype == torch.float32 for each in tensors):
        return True
    with torch.no_grad():
        return bool(functional(*given[0], **given[1]).dtype == held.dtype)


def _functional(node: FxNode) -> torch._ops.OpOverload | None:
    assert isinstance(node.target, torch._ops.OpOverload)
    namespace, name, overload = str(node.target).split(".")
    packet = getattr(getattr(torch.ops, namespace), name.removesuffix("_"), None) if name.endswith("_") else None
    found = getattr(packet, overload, None) if packet is not None else None
    return found if isinstance(found, torch._ops.OpOverload) else None
