"""All ranks must hold the same tensors in the same layouts: collectives move memory as it lies."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
import torch.distributed as distributed
from torch import nn
from torch.nn.parameter import is_lazy

from nhwc.distributed.wrappers import require_group, unwrap
from nhwc.errors import DistributedError

Described = tuple[str, tuple[int, ...], str, tuple[int, ...]]


def require_same_layouts(model: nn.Module, group: Any | None = None) -> None:
    """Raise DistributedError where the ranks' parameters or buffers differ in name, shape, dtype or strides.

    Broadcast and all-reduce would permute the values of such tensors without a word. Every rank of ``group`` (by
    default all) has to call it, and all of them raise together; the message names the first tensor that differs, what
    it is where, and the ranks.
    """
    require_group("require_same_layouts")
    mine = describe(unwrap(model))
    size = distributed.get_world_size(group)
    everyone: list[Any] = [None] * size
    digest = hashlib.sha256(repr(mine).encode()).hexdigest()
    distributed.all_gather_object(everyone, digest, group=group)
    if len(set(everyone)) == 1:
        return
    # Only now the whole lists travel, which are long for a large model.
    distributed.all_gather_object(everyone, mine, group=group)
    raise DistributedError(difference(everyone))


def describe(model: nn.Module) -> list[Described]:
    """Name, shape, dtype and strides of every parameter and buffer."""
    tensors = [*model.named_parameters(), *model.named_buffers()]
    return [
        (name, tuple(tensor.shape), str(tensor.dtype), tuple(tensor.stride()))
        for name, tensor in tensors
        if not is_lazy(tensor) and tensor.layout is torch.strided and not tensor.is_nested
    ]


def difference(everyone: list[list[Described]]) -> str:
    """One sentence on the first tensor in which the ranks differ."""
    by_rank = [{name: rest for name, *rest in described} for described in everyone]
    names = dict.fromkeys(name for described in by_rank for name in described)
    for name in names:
        found: dict[str, list[int]] = {}
        for rank, tensors in enumerate(by_rank):
            found.setdefault(_say(tensors.get(name)), []).append(rank)
        if len(found) > 1:
            told = ", ".join(f"{what} on {_ranks(ranks)}" for what, ranks in found.items())
            return (
                f"{name} is not the same on all ranks, so that collectives would permute its values: {told}; build and "
                "convert the model in the same way on every rank"
            )
    return "the ranks have the same tensors in another order; build the model in the same way on every rank"


def _say(tensor: list[Any] | None) -> str:
    if tensor is None:
        return "missing"
    shape, dtype, strides = tensor
    return f"{dtype.removeprefix('torch.')} {shape} with strides {strides}"


def _ranks(ranks: list[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))
