"""Which parameters DistributedDataParallel would broadcast alone.

Its constructor packs parameters and buffers of one type into groups of 250 MiB and broadcasts each group as one flat
tensor. A group of one is not packed: its flat view is copied onto the parameter itself, and torch raises where both
show the same memory under different strides, as it is with channels-last strides on a weight that is contiguous too
(1x1, depthwise, one input channel). Read from torch 2.11 to 2.14.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

GROUP_BYTES = 250 * 1024 * 1024


def broadcast_alone(parameters: Iterable[torch.Tensor], buffers: Iterable[torch.Tensor]) -> set[int]:
    """The ``id`` of each parameter that is alone in its group, with or without the buffers taking part."""
    own, others = list(parameters), list(buffers)
    alone = set()
    for tensors in (own, [*own, *others]):
        alone |= {id(group[0]) for group in _groups(tensors) if len(group) == 1}
    return alone & {id(tensor) for tensor in own}


def _groups(tensors: Iterable[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    filling: dict[tuple[torch.dtype, torch.device], list[torch.Tensor]] = {}
    filled_bytes: dict[tuple[torch.dtype, torch.device], int] = {}
    for tensor in tensors:
        key = (tensor.dtype, tensor.device)
        filling.setdefault(key, []).append(tensor)
        filled_bytes[key] = filled_bytes.get(key, 0) + tensor.numel() * tensor.element_size()
        if filled_bytes[key] >= GROUP_BYTES:
            del filled_bytes[key]
            yield filling.pop(key)
    yield from filling.values()
