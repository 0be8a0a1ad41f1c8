"""Which modules conversion works on, and which wrappers it refuses."""

from __future__ import annotations

import torch
from torch import nn

from nhwc.errors import ConversionError

_WRAPPERS = {
    "DistributedDataParallel": "it would copy every gradient at each step; convert the model inside before wrapping it",
    "FullyShardedDataParallel": "it keeps flat contiguous parameters; leave this model contiguous",
    "FSDPModule": "fully_shard takes contiguous parameters only; convert before nhwc.distributed.fully_shard",
}


def convertible(model: nn.Module) -> nn.Module:
    """The module to work on: ``model``, or the one inside a ``torch.compile`` wrapper (which recompiles by itself)."""
    if not isinstance(model, nn.Module):
        raise ConversionError(f"expected a torch.nn.Module, got {type(model).__name__}")
    for path, module in model.named_modules():
        where = f"{path}: " if path else ""
        if isinstance(module, torch.jit.ScriptModule) and any(p.dim() in (4, 5) for p in module.parameters()):
            raise ConversionError(f"{where}a TorchScript module has lost its layers' types; convert before scripting")
        # By name: importing FSDP to ask would cost more than the whole conversion.
        for base in type(module).__mro__:
            if base.__name__ in _WRAPPERS and base.__module__.startswith("torch."):
                raise ConversionError(f"{where}{base.__name__} holds the model; {_WRAPPERS[base.__name__]}")
    return inside_compiled(model)


def inside_compiled(model: nn.Module) -> nn.Module:
    """The module inside a ``torch.compile`` wrapper, or the one that is given. Read from torch 2.11 to 2.14."""
    inner = dict(model.named_children()).get("_orig_mod")
    return inner if inner is not None and type(model).__name__ == "OptimizedModule" else model
