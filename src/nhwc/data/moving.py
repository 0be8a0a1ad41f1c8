"""Batches on their way to the device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch


def each_tensor(parts: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """``parts`` (tensors in lists, tuples and dictionaries) with every tensor changed; all else stays as it is."""
    if isinstance(parts, torch.Tensor):
        return change(parts)
    if isinstance(parts, Mapping):
        return {key: each_tensor(value, change) for key, value in parts.items()}
    if isinstance(parts, tuple) and hasattr(parts, "_fields"):
        return type(parts)(*(each_tensor(each, change) for each in parts))
    if isinstance(parts, list | tuple):
        return type(parts)(each_tensor(each, change) for each in parts)
    return parts


def to_device(parts: Any, device: torch.device) -> Any:
    """``parts`` on ``device``; from pinned memory without waiting. Strides stay as they are."""
    return each_tensor(parts, lambda tensor: tensor.to(device, non_blocking=True))


def ahead(batches: Iterable[Any], prepare: Callable[[Any], Any], device: torch.device) -> Iterator[Any]:
    """Each of ``batches`` as ``prepare`` makes it: on CUDA one batch ahead, on a stream beside the caller's."""
    if device.type != "cuda":
        yield from map(prepare, batches)
        return
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    waiting: tuple[Any, torch.cuda.Event] | None = None
    for batch in batches:
        with torch.cuda.stream(stream):
            made = prepare(batch), stream.record_event()
        if waiting is not None:
            yield _released(*waiting, device)
        waiting = made
    if waiting is not None:
        yield _released(*waiting, device)


def _released(prepared: Any, done: torch.cuda.Event, device: torch.device) -> Any:
    """What was made on another stream, for the current one: it waits for that, and its memory for this one."""
    current = torch.cuda.current_stream(device)
    current.wait_event(done)

    def used(tensor: torch.Tensor) -> torch.Tensor:
        tensor.record_stream(current)
        return tensor

    return each_tensor(prepared, used)
