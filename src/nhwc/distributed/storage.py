"""Convolution weights stored as contiguous (K, H, W, C), and shown to the layer as (K, C, H, W) in channels last.

``fully_shard`` takes contiguous parameters only. The parameter stays registered as "weight", so that names, optimizers
and groups of parameters are the usual ones; the class of the layer gets a property ``weight``, which stands before
``nn.Module.__getattr__``. FSDP2 touches the parameter in three ways, as read in torch 2.14.1 and in an earlier version:
it sets ``module._parameters["weight"]`` as long as the class has no ``__setattr__`` of its own; it asks
``getattr(module, "weight")`` for the sharded parameter, which is why the property shows that one as it is; and a whole
parameter is a plain tensor, which is what the layer computes with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from nhwc.strides import channels_last_for, strides_for

_CONVOLUTIONS = (nn.Conv2d, nn.ConvTranspose2d, nn.Conv3d, nn.ConvTranspose3d)
_classes: dict[type[nn.Module], type[nn.Module]] = {}


def to_storage(weight: torch.Tensor) -> torch.Tensor:
    """(K, C, H, W) as a view (K, H, W, C); the same with a D in front of H."""
    return weight.permute(0, *range(2, weight.dim()), 1)


def from_storage(weight: torch.Tensor) -> torch.Tensor:
    """(K, H, W, C) as a view (K, C, H, W)."""
    return weight.permute(0, weight.dim() - 1, *range(1, weight.dim() - 1))


class StoredWeight(nn.Module):
    """What the class of such a layer gets in front of its own bases."""

    @property
    def weight(self) -> torch.Tensor | None:
        """The usual view (K, C, H, W) of a whole weight; a sharded one as it is stored."""
        stored = self._parameters["weight"]
        return stored if stored is None or isinstance(stored, DTensor) else from_storage(stored)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        name = f"{prefix}weight"
        if name in destination:
            destination[name] = from_storage(destination[name])

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, local_metadata: Mapping[str, Any], *rest: Any
    ) -> None:
        name = f"{prefix}weight"
        given, stored = state_dict.get(name), self._parameters["weight"]
        if isinstance(given, torch.Tensor) and stored is not None and given.dim() == stored.dim():
            given = to_storage(given)
            if local_metadata.get("assign_to_params_buffers", False):
                given = given.contiguous()
            state_dict = {**state_dict, name: given}  # the caller's own stays as it is
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


def storable(module: nn.Module) -> bool:
    """Whether the weight of ``module`` can be stored so: a convolution's own parameter, canonically channels last.

    A weight that the class or a parametrization computes has no parameter of this name.
    """
    weight = module._parameters.get("weight")
    if not isinstance(module, _CONVOLUTIONS) or isinstance(module, StoredWeight) or weight is None:
        return False
    if isinstance(weight, DTensor) or hasattr(type(module), "weight"):
        return False
    memory_format = channels_last_for(weight.dim())
    return memory_format is not None and weight.stride() == strides_for(weight.shape, memory_format)


def store(module: nn.Module, stored: dict[int, nn.Parameter]) -> None:
    """Change one layer. stored: by the ``id`` of the old parameter the new one, so that tied weights stay tied."""
    weight = module._parameters["weight"]
    assert weight is not None
    if id(weight) not in stored:
        values = to_storage(weight.detach())
        # Strides of dimensions of size 1 follow from the shape alone; the memory is that of the weight.
        values = values.as_strided(values.shape, strides_for(values.shape, "contiguous"))
        stored[id(weight)] = nn.Parameter(values, requires_grad=weight.requires_grad)
    module._parameters["weight"] = stored[id(weight)]
    module.__class__ = _stored_class(type(module))


def unstore(module: nn.Module, weight: nn.Parameter) -> None:
    """Undo ``store`` for a layer that is not sharded yet."""
    module._parameters["weight"] = weight
    module.__class__ = type(module).__mro__[2]


def stored_parameters(model: nn.Module) -> set[int]:
    """The ``id`` of every parameter of ``model`` that is stored as (K, H, W, C)."""
    return {id(module._parameters["weight"]) for module in model.modules() if isinstance(module, StoredWeight)}


def _stored_class(kind: type[nn.Module]) -> type[nn.Module]:
    if kind not in _classes:
        _classes[kind] = type(f"Stored{kind.__name__}", (StoredWeight, kind), {"__module__": __name__})
    return _classes[kind]
