"""Getting the samples of a batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils.data import Dataset

from nhwc.data.collation import stack
from nhwc.data.moving import each_tensor
from nhwc.data.seeding import isolated, seed_all, seed_of
from nhwc.data.unreadable import Unreadable
from nhwc.errors import DataError, NhwcError, UnreadableImageError


@dataclass(frozen=True)
class Request:
    """A batch to be fetched: the samples ``indices`` as ``epoch`` has them."""

    epoch: int
    indices: list[int]


@dataclass(frozen=True)
class Fetched:
    """A batch: what collate made of its samples, None where none can be read; and those that cannot.

    failure: an error of ours in the place of all that. Raised in a worker, it would come with the worker's traceback
        for its text.
    """

    parts: Any
    unreadable: list[Unreadable]
    failure: NhwcError | None = None

    def pin_memory(self) -> Fetched:
        """Called by DataLoader, whose own way knows no classes."""
        return replace(self, parts=each_tensor(self.parts, torch.Tensor.pin_memory))


def on_cpu() -> AbstractContextManager[object]:
    """Inside, tensors are made on the CPU, whatever torch.set_default_device says."""
    return nullcontext() if torch.get_default_device().type == "cpu" else torch.device("cpu")


class Fetcher(Dataset[Fetched]):
    """Request → batch. Every sample draws its random numbers from (seed, epoch, index), whoever fetches it.

    replace: whether the next readable sample of the data set takes the place of an unreadable one.
    """

    def __init__(self, dataset: Any, length: int, seed: int, replace: bool) -> None:
        self.dataset, self.length, self.seed, self.replace = dataset, length, seed, replace

    def __getitem__(self, request: Request) -> Fetched:
        samples: list[Any] = []
        unreadable: list[Unreadable] = []
        try:
            with isolated():
                for index in request.indices:
                    samples += self._readable(request.epoch, index, unreadable)
            return Fetched(stack(samples) if samples else None, unreadable)
        except NhwcError as error:
            return Fetched(None, unreadable, error)

    def _readable(self, epoch: int, index: int, unreadable: list[Unreadable]) -> list[Any]:
        for further in range(self.length if self.replace else 1):
            sample = self._sample(epoch, (index + further) % self.length)
            if not isinstance(sample, Unreadable):
                return [sample]
            unreadable.append(sample)
        if self.replace:
            raise DataError(f"no sample of the data set can be read; the first: {unreadable[0]}")
        return []

    def _sample(self, epoch: int, index: int) -> Any:
        seed_all(seed_of(self.seed, epoch, index))
        try:
            return self.dataset[index]
        except UnreadableImageError as error:
            return Unreadable(error.name, error.reason)


class Here:
    """Fetches in this process, a batch when it is asked for."""

    def __init__(self, fetcher: Fetcher, pin: bool) -> None:
        self._fetcher, self._pin = fetcher, pin

    def fetch(self, requests: Iterable[Request]) -> Iterator[Fetched]:
        for request in requests:
            with on_cpu():
                fetched = self._fetcher[request]
            yield fetched.pin_memory() if self._pin else fetched

    def close(self) -> None:
        """There is nothing to end."""
