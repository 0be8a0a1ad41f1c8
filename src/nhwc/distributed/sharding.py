"""FSDP2 for models in channels last."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from typing import Any, TypeVar

import torch
import torch.distributed as distributed
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard as torch_fully_shard

from nhwc.conversion import forget, holders_of
from nhwc.distributed.blocks import chosen_blocks, usual_blocks
from nhwc.distributed.layouts import require_same_layouts
from nhwc.distributed.storage import storable, store, unstore
from nhwc.distributed.wrappers import require_group, require_plain
from nhwc.errors import DistributedError

ModelT = TypeVar("ModelT", bound=nn.Module)


def fully_shard(
    model: ModelT,
    *,
    blocks: Iterable[str | nn.Module | type[nn.Module]] | None = None,
    mesh: DeviceMesh | None = None,
    **fsdp_options: Any,
) -> ModelT:
    """Shard a model in channels last over the ranks with torch's ``fully_shard``, in place; returns the model.

    Call ``nhwc.convert`` before it, and make the optimizer after it. The weight of every convolution in channels last
    is stored as contiguous (K, H, W, C), without a copy, and shown to its layer as the usual (K, C, H, W) view. State
    dicts have the usual names and shapes. A weight that is in contiguous format stays as it is.

    blocks: what is gathered before its forward and freed behind it: modules, their names, or types. Each must be
        called as a module. By default the children of the model, or the children of these where they are containers,
        that have 100,000 parameters or more. The model itself holds the rest.
    mesh: the ranks; by default all of them, on the device of the parameters.
    fsdp_options: those of torch's ``fully_shard``, for all blocks and the model: ``reshard_after_forward``,
        ``mp_policy``, ``offload_policy`` and others.

    The ranks start from the values of the first one, as with DistributedDataParallel: torch's own would put a model
    together out of pieces of different ones, where the ranks have not drawn the same random numbers.

    Raises DistributedError without a process group, for a model that is wrapped, lazy, on the meta device, held by an
    optimizer already, or has a parameter that cannot be sharded, for unknown blocks and options, and where the ranks
    differ in layouts. The model is then as before.
    """
    require_group("fully_shard")
    require_plain(model, "fully_shard")
    _require_options(fsdp_options)
    chosen = usual_blocks(model) if blocks is None else chosen_blocks(model, blocks)
    parts: list[nn.Module] = [*chosen, model]
    for part in parts:
        if type(part).forward is nn.Module.forward:
            raise DistributedError(f"fully_shard: {type(part).__name__} is never called; choose the modules inside")
    ignored = {id(parameter) for parameter in fsdp_options.get("ignored_params") or ()}
    layers = [module for module in model.modules() if storable(module) and id(module.weight) not in ignored]
    _require_shardable(model, {id(layer.weight) for layer in layers} | ignored)
    for optimizer in holders_of(model.parameters()):
        raise DistributedError(
            f"fully_shard: an {type(optimizer).__name__} holds the parameters already, and would go on with the old "
            "ones; make it after fully_shard, and del an old one"
        )
    require_same_layouts(model, None if mesh is None else _group(mesh))
    where = _mesh(model) if mesh is None else mesh
    with ExitStack() as undo:
        _store(layers, undo)
        _start_alike(model, where)
        shard: Callable[[nn.Module], object] = partial(torch_fully_shard, mesh=where, **fsdp_options)
        for part in parts:
            shard(part)
            undo.pop_all()  # what is sharded stays sharded
    forget(model)
    return model


def _require_options(options: dict[str, Any]) -> None:
    known = [name for name in inspect.signature(torch_fully_shard).parameters if name not in ("module", "mesh")]
    for name in options:
        if name not in known:
            raise DistributedError(f"fully_shard: torch's has no option {name!r}; it has {', '.join(known)}")


def _require_shardable(model: nn.Module, fine: set[int]) -> None:
    for name, parameter in model.named_parameters():
        if parameter.dim() == 0:
            raise DistributedError(f"fully_shard: {name} is a scalar; give it one dimension of size 1")
        if id(parameter) not in fine and not parameter.is_contiguous():
            raise DistributedError(
                f"fully_shard: {name} is neither contiguous nor the channels-last weight of a convolution, it has "
                f"strides {parameter.stride()}; convert without also= or flatten= for it"
            )


def _group(mesh: DeviceMesh) -> Any:
    if mesh.ndim == 1:
        return mesh.get_group()
    return None


def _mesh(model: nn.Module) -> DeviceMesh:
    devices = {parameter.device.type for parameter in model.parameters()}
    if len(devices) != 1:
        raise DistributedError(
            f"fully_shard: parameters on {', '.join(sorted(devices)) or 'no device'}; move the model"
        )
    return init_device_mesh(devices.pop(), (distributed.get_world_size(),))


@torch.no_grad()
def _start_alike(model: nn.Module, mesh: DeviceMesh) -> None:
    """Give every rank of the mesh the values of the first one."""
    for tensor in [*model.parameters(), *model.buffers()]:
        travelling = tensor.detach().to(mesh.device_type).contiguous()
        for dim in reversed(range(mesh.ndim)):
            distributed.broadcast(travelling, group=mesh.get_group(dim), group_src=0)
        tensor.copy_(travelling)


def _store(layers: list[nn.Module], undo: ExitStack) -> None:
    stored: dict[int, nn.Parameter] = {}
    for layer in layers:
        weight = layer._parameters["weight"]
        assert isinstance(weight, torch.nn.Parameter)
        store(layer, stored)
        undo.callback(unstore, layer, weight)
