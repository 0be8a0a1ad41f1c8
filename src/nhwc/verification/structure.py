"""What operator calls do besides computing values: dtypes of results, memory shared unsaid, operands written unsaid.

Cheap enough to watch in every run. What differs from contiguous format is a suspicion, which comparing the one operator
in both formats confirms.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from nhwc.recorder.arguments import encode, mutated, written_unsaid
from nhwc.recorder.storage import NO_STORAGE

#: Operators of torch that share memory by design although their schemas do not say so.
_SHARES = ("aten._unsafe_view.default", "aten._reshape_alias.default", "aten.lift.default")
_TORCHS_OWN = ("aten", "prims", "prim")


class Structure(TorchDispatchMode):
    """Watches one run. shared, written: operator → how many of its calls did so unsaid."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.shared: Counter[str] = Counter()
        self.written: Counter[str] = Counter()
        self._dtypes: dict[str, list[tuple[torch.dtype, ...]]] = defaultdict(list)

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if not isinstance(func, torch._ops.OpOverload):
            return func(*args, **kwargs)
        inputs = operands(args, kwargs)
        # torch's own kernels are not held to account for this: a copy of every operand of every call is not cheap
        before = {} if func.namespace in _TORCHS_OWN else snapshots(unwritten(func, args, kwargs, inputs))
        result = func(*args, **kwargs)
        outputs = operands((result,), {})
        self._dtypes[str(func)].append(tuple(tensor.dtype for tensor in outputs))
        self.shared[str(func)] += bool(shared_unsaid(func, inputs, outputs))
        self.written[str(func)] += any(changed(tensor, was) for tensor, was in before.values())
        return result

    def suspects(self, contiguous: Structure) -> set[str]:
        """Operators that do otherwise here than in contiguous format."""
        found = {name for name, count in self.shared.items() if count > contiguous.shared[name]}
        found |= {name for name, count in self.written.items() if count > contiguous.written[name]}
        for name, dtypes in self._dtypes.items():
            others = contiguous._dtypes.get(name, [])
            if len(others) == len(dtypes) and others != dtypes:
                found.add(name)
        return found


def operands(args: Sequence[Any], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """Every tensor among the arguments, each once, in order."""
    found: list[torch.Tensor] = []
    encode([*args, *kwargs.values()], found)
    return list({id(tensor): tensor for tensor in found}.values())


def written(
    func: Any, args: Sequence[Any], kwargs: dict[str, Any], inputs: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """The operands that the call is meant to write."""
    unsaid = {id(tensor) for tensor in written_unsaid(func, args, kwargs)}
    said = set(mutated(func, args, kwargs, inputs))
    return [tensor for place, tensor in enumerate(inputs) if place in said or id(tensor) in unsaid]


def unwritten(
    func: Any, args: Sequence[Any], kwargs: dict[str, Any], inputs: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """The operands that the call has no business to change."""
    meant = {memory(tensor) for tensor in written(func, args, kwargs, inputs)}
    return [tensor for tensor in inputs if memory(tensor) not in meant]


def snapshots(tensors: Sequence[torch.Tensor]) -> dict[int, tuple[torch.Tensor, torch.Tensor]]:
    """id → (tensor, a copy of its values)."""
    return {id(tensor): (tensor, tensor.detach().clone()) for tensor in tensors if tensor.layout is torch.strided}


def changed(tensor: torch.Tensor, before: torch.Tensor) -> bool:
    """Whether the values are others than before; NaN equals NaN."""
    if tensor.shape != before.shape:
        return True
    now = tensor.detach()
    same = now == before
    return not bool((same | ((now != now) & (before != before))).all())


def shared_unsaid(func: Any, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> bool:
    """Whether a result lies in the memory of an operand although the operator's schema does not say so."""
    if str(func) in _SHARES or any(returned.alias_info is not None for returned in func._schema.returns):
        return False
    memories = {memory(tensor) for tensor in inputs} - {0}
    return any(memory(tensor) in memories for tensor in outputs)


def memory(tensor: torch.Tensor) -> int:
    """The address of a tensor's storage, 0 where it has none."""
    try:
        return tensor.untyped_storage().data_ptr()
    except NO_STORAGE:
        return 0
