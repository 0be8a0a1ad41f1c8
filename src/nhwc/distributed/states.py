"""Tensors of a distributed model or optimizer: made whole for one process, or cut to the share of this rank."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from nhwc.distributed.storage import from_storage, stored_parameters, to_storage
from nhwc.errors import DistributedError
from nhwc.strides import channels_last_for, strides_for


class States:
    """The parameters of one model as its optimizer holds them, in usual shapes.

    A sharded model must not have gathered its parameters while one of these lives.
    """

    def __init__(self, core: nn.Module) -> None:
        for module in core.modules():
            if isinstance(module, FSDPModule):
                module.reshard()
        self.names = {id(parameter): name for name, parameter in core.named_parameters()}
        self._stored = stored_parameters(core)

    def usual(self, parameter: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """A value of the parameter's own shape as a view in the usual shape, (K, C, H, W); another one as it is."""
        fits = id(parameter) in self._stored and value.shape == parameter.shape
        return from_storage(value) if fits else value

    def stored(self, parameter: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """The reverse of ``usual``: a copy of a whole value as the parameter holds it, sharded where the parameter is.

        Not the value itself, which an optimizer would write to, nor a part of it, which would keep all of it alive.
        """
        if value.shape != usual_shape(parameter, id(parameter) in self._stored):
            return value.clone()
        turned = to_storage(value) if id(parameter) in self._stored else value
        return shared_out(turned, parameter) if isinstance(parameter, DTensor) else turned.clone()

    def require_all(self, optimizer: Optimizer) -> None:
        """Raise where the optimizer holds a parameter that is none of the model's."""
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) not in self.names:
                    raise DistributedError(
                        f"the {type(optimizer).__name__} holds a parameter of shape {tuple(parameter.shape)} that is "
                        "not the model's; make the optimizer after fully_shard, of the same model"
                    )


def parameters_by_index(optimizer: Optimizer, groups: list[dict[str, Any]]) -> dict[int, torch.Tensor]:
    """The optimizer's parameters by the numbers that the groups of a state dict have for them."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    indices = [index for group in groups for index in group["params"]]
    return dict(zip(indices, parameters, strict=True))


def usual_shape(parameter: torch.Tensor, stored: bool) -> torch.Size:
    """The shape that an unchanged model would have."""
    shape = parameter.shape
    return torch.Size((shape[0], shape[-1], *shape[1:-1])) if stored else shape


def whole(value: torch.Tensor) -> torch.Tensor:
    """A copy on the CPU, of every rank's share where the value is sharded: then all ranks have to call it."""
    value = value.detach()
    if not isinstance(value, DTensor):
        return value.to("cpu", copy=True)
    # Gathered as it lies, a channels-last weight keeps its strides and is not copied into another order.
    last = channels_last_for(value.dim())
    turned = last is not None and value.stride() == strides_for(value.shape, last)
    full = (to_storage(value) if turned else value).full_tensor().to("cpu", copy=True)  # type: ignore[attr-defined]
    return from_storage(full) if turned else full


def shared_out(value: torch.Tensor, like: DTensor) -> DTensor:
    """This rank's share of a whole value, a copy, as ``like`` is sharded; no rank hears of another."""
    if not isinstance(value, DTensor):
        value = value.to(device=like.to_local().device, dtype=like.dtype).contiguous()
        value = distribute_tensor(value, like.device_mesh, like.placements, src_data_rank=None)
    # A share that is a view would keep the whole value alive.
    return value.clone()  # type: ignore[return-value]


def tensors_of(state: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The tensors of a flat state dict."""
    return {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
