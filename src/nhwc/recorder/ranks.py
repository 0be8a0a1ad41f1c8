"""What every rank of a process group holds: collectives permute values silently where the ranks' layouts differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy

from nhwc.model import RankLayout
from nhwc.recorder.modules import unwrap


def compare(roots: Sequence[nn.Module], group: Any | None, limits: list[str]) -> tuple[RankLayout, ...]:
    """The layouts of all ranks, where a root is wrapped by DistributedDataParallel or ``group`` is given.

    Otherwise nothing is gathered, since another rank might not take part, and ``limits`` says so.
    """
    if not distributed.is_available() or not distributed.is_initialized():
        return ()
    wrapped = next((root for root in roots if isinstance(root, DistributedDataParallel)), None)
    if wrapped is not None:
        return gather_layouts(unwrap(wrapped), group or wrapped.process_group)
    if group is not None and roots:
        return gather_layouts(unwrap(roots[0]), group)
    limits.append("a process group exists but the ranks' layouts were not compared: pass process_group= on every rank")
    return ()


def gather_layouts(model: nn.Module, group: Any | None = None) -> tuple[RankLayout, ...]:
    """Names, shapes and strides of every parameter and buffer on every rank. All ranks of the group must call it."""
    mine = tuple(
        (name, tuple(tensor.shape), tuple(tensor.stride()))
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]
        if not is_lazy(tensor) and tensor.layout is torch.strided and not tensor.is_nested
    )
    everyone: list[Any] = [None] * distributed.get_world_size(group)
    distributed.all_gather_object(everyone, mine, group=group)
    return tuple(RankLayout(rank, tensors) for rank, tensors in enumerate(everyone))
