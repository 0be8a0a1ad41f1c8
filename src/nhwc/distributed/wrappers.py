"""The model inside its wrappers, and the process group that a verb needs."""

from __future__ import annotations

import torch.distributed as distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy

from nhwc.errors import DistributedError


def unwrap(model: nn.Module) -> nn.Module:
    """The module inside of DistributedDataParallel and ``torch.compile``, in any order."""
    while True:
        if isinstance(model, DistributedDataParallel):
            model = model.module
        elif type(model).__name__ == "OptimizedModule" and "_orig_mod" in dict(model.named_children()):
            model = model.get_submodule("_orig_mod")
        else:
            return model


def is_sharded(model: nn.Module) -> bool:
    """Whether ``torch.distributed.fsdp.fully_shard`` holds the model or a part of it."""
    return any(base.__name__ == "FSDPModule" for module in model.modules() for base in type(module).__mro__)


def has_group() -> bool:
    """Whether there is a process group."""
    return distributed.is_available() and distributed.is_initialized()


def require_group(verb: str) -> None:
    """Raise where there is no process group yet."""
    if not has_group():
        raise DistributedError(
            f"{verb} needs a process group: start with torchrun, and call it inside of nhwc.distributed.joined()"
        )


def require_plain(model: object, verb: str) -> None:
    """Raise where ``model`` is no module that can be distributed: wrapped already, not initialized yet."""
    if not isinstance(model, nn.Module):
        raise DistributedError(f"{verb} takes a torch.nn.Module, got {type(model).__name__}")
    for path, module in model.named_modules():
        if isinstance(module, DistributedDataParallel):
            where = f" at {path}" if path else ""
            raise DistributedError(
                f"{verb}: DistributedDataParallel holds the model already{where}; pass the one inside"
            )
    if is_sharded(model):
        raise DistributedError(f"{verb}: fully_shard holds the model already; pass an unchanged one")
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if is_lazy(tensor):
            raise DistributedError(f"{verb}: {name} is not initialized yet; run the model once first")
        if tensor.is_meta:
            raise DistributedError(f"{verb}: {name} is on the meta device; initialize it on a real one first")
