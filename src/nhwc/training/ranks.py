"""What the processes of a run tell each other, besides gradients; with one process nothing is sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as distributed
from torch import Tensor

from nhwc.errors import NhwcError, TrainingError

T = TypeVar("T")


def is_lost(error: Exception) -> bool:
    """Whether another process of the run has ended, and the collective that waited for it raised this."""
    words = str(error)
    return isinstance(error, RuntimeError) and several() and ("gloo" in words.lower() or "NCCL" in words)


@contextmanager
def failing_together() -> Iterator[None]:
    """What one rank raises inside the block, all ranks raise behind it; inside, no rank waits for another.

    A rank that did not fail itself names the first that did: in a TrainingError where that raised an NhwcError, in a
    RuntimeError for any other fault.
    """
    own: Exception | None = None
    try:
        yield
    except Exception as error:  # noqa: BLE001 - raised again below
        own = error
    if several():
        told = everyones(
            None if own is None else (isinstance(own, NhwcError), f"{type(own).__name__}: {own}", str(own))
        )
        failed = next(((rank, each) for rank, each in enumerate(told) if each is not None), None)
        if own is None and failed is not None:
            rank, (known, whole, sentence) = failed
            if known:
                raise TrainingError(f"rank {rank} ended the run: {sentence}")
            raise RuntimeError(f"rank {rank} ended the run: {whole}")
    if own is not None:
        raise own


def size() -> int:
    """How many processes there are in the group; 1 without one."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def several() -> bool:
    return size() > 1


def total(values: Tensor) -> Tensor:
    """The sum over ranks of a tensor, as a new one."""
    summed = values.clone()
    if several():
        distributed.all_reduce(summed)
    return summed


def take_firsts(tensors: Iterable[Tensor]) -> None:
    """Give tensors the values that they have on rank 0, in place; shapes and strides agree already."""
    if several():
        for each in tensors:
            distributed.broadcast(each, src=0)


def most(value: int, device: torch.device) -> int:
    """The largest over ranks."""
    return int(largest((value,), device)[0])


def largest(values: Sequence[float], device: torch.device) -> list[float]:
    """The largest over ranks of each value."""
    if not several():
        return list(values)
    found = torch.tensor(values, dtype=torch.float64, device=device)
    distributed.all_reduce(found, op=distributed.ReduceOp.MAX)
    return [float(each) for each in found.tolist()]


def everyones(value: T) -> list[T]:
    """What each rank holds, in the order of ranks."""
    if not several():
        return [value]
    gathered: list[Any] = [None] * size()
    distributed.all_gather_object(gathered, value)
    return gathered


def firsts(value: T) -> T:
    """What rank 0 holds."""
    if not several():
        return value
    box: list[Any] = [value]
    distributed.broadcast_object_list(box, src=0)
    result: T = box[0]
    return result
