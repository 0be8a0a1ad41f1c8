"""Fake tensors: a step that computes nothing and holds no data, for models larger than memory.

Private interfaces, read from torch 2.11 to 2.14: torch._subclasses.fake_tensor.FakeTensorMode and FakeTensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_map

#: Operators for which fake tensors promise another format than eager gives, per device type: (eager, fake).
#: Checked against the installed torch by tests/recorder/test_static.py.
DISAGREEMENTS: dict[str, dict[str, tuple[str, str]]] = {
    "cpu": {
        "native_group_norm": ("channels_last", "contiguous"),
        "native_channel_shuffle": ("channels_last", "contiguous"),
        "channel_shuffle": ("channels_last", "contiguous"),
    },
}

LIMITS = (
    "fake tensors compute nothing: times are not measured",
    "copies inside kernels and inside libraries cannot be seen without running the kernels",
)


def fake_mode() -> FakeTensorMode:
    """The mode to build a model and its inputs under for a static audit; real tensors that meet it are converted."""
    return FakeTensorMode(allow_non_fake_inputs=True)


def mode_of(model: nn.Module, inputs: Sequence[Any]) -> FakeTensorMode:
    """The mode under which ``model`` was built, else that of an input, else a new one."""
    tensors: list[Any] = [*model.parameters(), *model.buffers()]
    tree_map(lambda value: tensors.append(value), list(inputs))
    for tensor in tensors:
        if isinstance(tensor, FakeTensor):
            return tensor.fake_mode
    return fake_mode()


def to_fake(mode: FakeTensorMode, tree: Any) -> Any:
    """Every real tensor in a nest of containers as a fake one of the same shape, strides, dtype and device."""

    def convert(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor):
            return mode.from_tensor(value, static_shapes=True)
        return value

    return tree_map(convert, tree)


def fake_state(mode: FakeTensorMode, model: nn.Module) -> dict[str, torch.Tensor]:
    """Fake parameters and buffers by name, for ``torch.func.functional_call``; tied ones stay tied."""
    made: dict[int, torch.Tensor] = {}
    state: dict[str, torch.Tensor] = {}
    for name, tensor in [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]:
        if id(tensor) not in made:
            fake = to_fake(mode, tensor)
            made[id(tensor)] = fake.detach().requires_grad_(tensor.requires_grad) if tensor.is_leaf else fake
        state[name] = made[id(tensor)]
    return state
