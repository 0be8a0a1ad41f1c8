"""What every rank of a process group holds: collectives permute values silently where the ranks' layouts differ."""

from __future__ import annotations

from typing import Any

import torch.distributed as distributed
from torch import nn

from nhwc.model import RankLayout


def gather_layouts(model: nn.Module, group: Any | None = None) -> tuple[RankLayout, ...]:
    """Names, shapes and strides of every parameter and buffer on every rank. All ranks of the group must call it."""
    mine = tuple(
        (name, tuple(tensor.shape), tuple(tensor.stride()))
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]
        if tensor.layout.__str__() == "torch.strided"
    )
    everyone: list[Any] = [None] * distributed.get_world_size(group)
    distributed.all_gather_object(everyone, mine, group=group)
    return tuple(RankLayout(rank, tensors) for rank, tensors in enumerate(everyone))
