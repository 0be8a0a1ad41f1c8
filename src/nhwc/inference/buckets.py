"""A batch of any size in an engine built for a larger one: rows of zeros fill it up and are cut off again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from nhwc.errors import EngineError
from nhwc.inference.graph import Value
from nhwc.inference.loaded import Loaded
from nhwc.inference.specialization import Specialization, signature_of

Arguments = tuple[Sequence[Any], Mapping[str, Any]]


def resized(arguments: Arguments, batch: int) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Example arguments with another batch size: every tensor whose first size is the first tensor's.

    Raises EngineError where there is no batch to change.
    """
    flat, spec = pytree.tree_flatten((tuple(arguments[0]), dict(arguments[1])))
    size = _batch_of(flat)
    if batch < 1 or size is None:
        raise EngineError(f"batches: expected sizes from 1 and an example with a batch, got {batch} and {size}")

    def grown(each: Any) -> Any:
        if not _has_batch(each, size):
            return each
        return each.repeat(-(-batch // size), *[1] * (each.dim() - 1))[:batch].contiguous()

    args, kwargs = pytree.tree_unflatten([grown(each) for each in flat], spec)
    return args, kwargs


def sizes_to_build(arguments: Arguments, batches: Sequence[int]) -> list[int]:
    """The batch sizes to build besides the example's: the wanted ones, and half the example's where it alone is wanted.

    One size does not tell what of the outputs goes with the batch.
    """
    size = _batch_of(pytree.tree_leaves((tuple(arguments[0]), dict(arguments[1]))))
    others = sorted(set(batches) - {size})
    return others if others or not batches or size is None or size == 1 else [size // 2]


def _batch_of(flat: Sequence[Any]) -> int | None:
    sizes = [each.shape[0] for each in flat if isinstance(each, torch.Tensor) and each.dim() > 0]
    return sizes[0] if sizes and sizes[0] > 0 else None


def _has_batch(each: Any, size: int) -> bool:
    return isinstance(each, torch.Tensor) and each.dim() > 0 and each.shape[0] == size


class Buckets:
    """Finds the engine for a batch, fills the batch up, runs it, and cuts its outputs.

    What of the outputs goes with the batch is told by comparing engines of different batch sizes: there must be two.
    Raises EngineError for an output that goes with the batch in any way but as its first size.
    """

    def __init__(self, first: Specialization | Loaded, others: Sequence[Specialization | Loaded]) -> None:
        self.all = sorted((first, *others), key=_batch)
        self.batched_outputs = _batched(self.all)

    def run(self, flat: Sequence[Any]) -> Any:
        """The outputs, as the model structures them; None where no engine fits."""
        size = _batch_of(flat)
        found = next((each for each in self.all if size is not None and _batch(each) >= size), None)
        if found is None or size is None:
            return None
        bucket = _batch(found)
        filled = [_filled(each, bucket) if _has_batch(each, size) else each for each in flat]
        if signature_of(filled) != found.signature:
            return None
        outputs = found(filled)
        cut = [each[:size] if batched else each for each, batched in zip(outputs, self.batched_outputs, strict=True)]
        return pytree.tree_unflatten(cut, found.captured.out_spec)


def _batch(of: Specialization | Loaded) -> int:
    size = _batch_of(of.example)
    assert size is not None
    return size


def _filled(tensor: torch.Tensor, batch: int) -> torch.Tensor:
    order = (
        torch.channels_last if tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last) else None
    )
    shape = (batch, *tensor.shape[1:])
    filled = torch.zeros(shape, dtype=tensor.dtype).contiguous(memory_format=order or torch.contiguous_format)
    filled[: tensor.shape[0]] = tensor
    return filled


def _batched(ready: Sequence[Specialization | Loaded]) -> list[bool]:
    """For every output whether its first size is the batch; the others must be the same for all batches.

    Raises EngineError for an output that goes with the batch in another way.
    """
    batches = [_batch(each) for each in ready]
    return [
        _is_batched(place, outputs, batches)
        for place, outputs in enumerate(zip(*(each.graph.outputs for each in ready), strict=True))
    ]


def _is_batched(place: int, outputs: Sequence[Any], batches: Sequence[int]) -> bool:
    if all(isinstance(each, Value) and each.shape is not None for each in outputs):
        shapes = [each.sizes for each in outputs]
        if all(shape == (batch, *shapes[0][1:]) for shape, batch in zip(shapes, batches, strict=True)):
            return True
        if len(set(shapes)) == 1:
            return False
        told = [f"of shape {shape}" for shape in shapes]
    elif any(isinstance(each, Value) for each in outputs):
        told = ["of a shape that is known only while it runs"] * len(outputs)
    elif all(each == outputs[0] for each in outputs):
        return False
    else:
        told = [repr(each) for each in outputs]
    raise EngineError(
        f"batches: output {place} of the model is {told[0]} for a batch of {batches[0]}, {told[-1]} for one of "
        f"{batches[-1]}, so that rows which fill a batch up cannot be cut off again; give an example of each size "
        "instead (shapes=)"
    )
