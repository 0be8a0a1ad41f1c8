"""Build a model that may be larger than memory, and hand it over on fake tensors.

Fake tensors alone do not carry a model through its constructor: many compute their depths, rates and masks with
small tensors and read the numbers back. So only what a module registers gives up its memory, at that moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


@contextmanager
def weightless() -> Iterator[None]:
    """While open, every parameter and buffer that a module registers moves to the meta device and is never filled."""
    from torch import nn
    from torch.nn.modules.module import (
        register_module_buffer_registration_hook,
        register_module_parameter_registration_hook,
    )
    from torch.nn.parameter import is_lazy

    def without_memory(_module: nn.Module, _name: str, tensor: Tensor | None) -> Tensor | None:
        if tensor is None or tensor.is_meta or is_lazy(tensor):
            return None
        empty = tensor.detach().to("meta")
        return nn.Parameter(empty, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else empty

    # torch's hint says that a hook returns nothing; its text, and its code, let it return a replacement.
    hook: Any = without_memory
    handles = [register_module_parameter_registration_hook(hook), register_module_buffer_registration_hook(hook)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def make_fake(model: nn.Module, place: torch.device) -> None:
    """Replace every parameter and buffer of ``model`` by a fake one on ``place``; what was tied stays tied.

    To be called while a fake mode is active.
    """
    from torch import nn
    from torch.nn.parameter import is_lazy

    made: dict[int, Tensor] = {}
    originals = []  # keeps ids from being given out again
    for module in model.modules():
        held = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
        for name, tensor in held:
            if is_lazy(tensor):
                continue
            if id(tensor) not in made:
                originals.append(tensor)
                fake = fake_like(tensor, place)
                is_parameter = isinstance(tensor, nn.Parameter)
                made[id(tensor)] = nn.Parameter(fake, tensor.requires_grad) if is_parameter else fake
            setattr(module, name, made[id(tensor)])


def fake_like(tensor: Tensor, place: torch.device) -> Tensor:
    """A tensor of the same shape, strides and dtype on ``place``; fake where a fake mode is active."""
    import torch

    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=place)
