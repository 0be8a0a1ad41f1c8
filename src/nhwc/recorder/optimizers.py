"""Optimizers seen during a recording, through torch's global optimizer hooks: the optimizer phase and state strides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from nhwc.model import OptimizerStateMeta


class OptimizerWatch:
    """Calls ``on_step`` before an optimizer's step and ``on_done`` after it; remembers the optimizers."""

    def __init__(self, on_step: Callable[[Optimizer], None], on_done: Callable[[Optimizer], None]) -> None:
        self._on_step = on_step
        self._on_done = on_done
        self._handles: list[torch.utils.hooks.RemovableHandle] = []

    def __enter__(self) -> OptimizerWatch:
        self._handles = [
            register_optimizer_step_pre_hook(lambda optimizer, _args, _kwargs: self._on_step(optimizer)),
            register_optimizer_step_post_hook(lambda optimizer, _args, _kwargs: self._on_done(optimizer)),
        ]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


def state_layouts(optimizer: Optimizer, names: Mapping[int, str]) -> list[OptimizerStateMeta]:
    """Every state tensor of its parameter's shape (``names``: id(parameter) → name), with the strides of all three.

    A parameter without state yet gives one entry with key "" where its gradient exists, so that a gradient whose
    strides differ is seen in the first step too.
    """
    layouts: list[OptimizerStateMeta] = []
    for group in optimizer.param_groups:
        fused = bool(group.get("fused"))
        for position, parameter in enumerate(group["params"]):
            if not _strided(parameter):
                continue
            gradient = parameter.grad
            gradient_strides = tuple(gradient.stride()) if gradient is not None and _strided(gradient) else None
            state: Mapping[str, Any] = optimizer.state.get(parameter, {})
            tensors = {
                key: value
                for key, value in state.items()
                if isinstance(value, torch.Tensor)
                and _strided(value)
                and value.shape == parameter.shape
                and value.dim() > 0
            }
            entries = [(key, tuple(value.stride())) for key, value in tensors.items()]
            if not entries and gradient_strides is not None:
                entries = [("", tuple(parameter.stride()))]
            layouts += [
                OptimizerStateMeta(
                    type(optimizer).__name__,
                    fused,
                    names.get(id(parameter), f"parameter {position}"),
                    key,
                    tuple(parameter.stride()),
                    strides,
                    tuple(parameter.shape),
                    gradient_strides,
                )
                for key, strides in entries
            ]
    return layouts


def _strided(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided
