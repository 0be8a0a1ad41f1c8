"""Contiguous runs whose values are moved by roundings: what no format can be blamed for is measured with them.

Inputs and weights move once, and so does every result of a kernel that sums, since another order of summation rounds
otherwise in every layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from nhwc.recorder.arguments import encode
from nhwc.variants import Setup
from nhwc.verification.normalisation import move_statistics
from nhwc.verification.run import named_inputs

#: Parts of the names of operators that sum.
_SUMS = (
    "conv",
    "mm",
    "dot",
    "norm",
    "sum",
    "mean",
    "avg_pool",
    "var",
    "softmax",
    "attention",
    "upsample",
    "grid_sampl",
)


def nudged(tensor: torch.Tensor, seed: int, roundings: float = 1.0, rounding: float = 0.0) -> torch.Tensor:
    """``tensor`` times 1 ± ``roundings`` epsilons at most, at random and the same in every memory format.

    rounding: a greater epsilon to use, such as that of autocast's dtype.
    """
    step = roundings * max(torch.finfo(tensor.dtype).eps, rounding)
    generator = torch.Generator().manual_seed(seed)
    move = (torch.rand(tensor.shape, generator=generator) * 2 - 1) * step
    moved = tensor.detach().double().cpu() * (1 + move.double())
    return torch.empty_like(tensor).copy_(moved.to(tensor))


def nudge(setup: Setup, seed: int, rounding: float = 0.0) -> None:
    """Move every floating parameter and input of ``setup`` by a rounding, in place."""
    with torch.no_grad():
        tensors = [*setup.model.parameters(), *(tensor for _, tensor in named_inputs(setup))]
        for place, tensor in enumerate(tensors):
            if tensor.is_floating_point() and tensor.layout is torch.strided:
                tensor.copy_(nudged(tensor, seed * 100_003 + place, rounding=rounding))


class Rounding(TorchDispatchMode):
    """Moves every result of an operator that sums by some roundings of its dtype."""

    supports_higher_order_operators = True

    def __init__(self, seed: int, roundings: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._seed = seed * 1_000_003
        self._roundings = roundings

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if not isinstance(func, torch._ops.OpOverload) or func._schema.is_mutable:
            return result
        name = func._schema.name.partition("::")[2]
        if any(returned.alias_info is not None for returned in func._schema.returns) or not _sums(name):
            return result
        found: list[torch.Tensor] = []
        encode(result, found)
        with _disable_current_modes(), torch.no_grad():
            for tensor in found:
                if tensor.is_floating_point() and tensor.layout is torch.strided:
                    self._seed += 1
                    tensor.copy_(nudged(tensor, self._seed, self._roundings))
            move_statistics(func, args, result, self._seed, self._roundings)
        return result


def _sums(name: str) -> bool:
    return any(part in name for part in _SUMS)
