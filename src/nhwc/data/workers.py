"""Fetching in worker processes: those of torch's DataLoader, kept for all epochs.

Private interface, read from torch 2.11 to 2.14: ``DataLoader._iterator`` and its ``_shutdown_workers``. Left to garbage
collection, workers end after five seconds each where an error has tied them into a cycle.
"""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Iterable, Iterator
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from nhwc.data.fetching import Fetched, Fetcher, Request, on_cpu
from nhwc.errors import DataError


class _Requests:
    """What a DataLoader takes for its sampler: the requests of the iteration that begins next."""

    def __init__(self) -> None:
        self.coming: Iterable[Request] = ()

    def __iter__(self) -> Iterator[Request]:
        return iter(self.coming)


class InWorkers:
    """Fetches in processes of its own, ahead of what is asked for; they live until ``close``, or until one fails."""

    def __init__(self, fetcher: Fetcher, pin: bool, workers: int, prefetch: int) -> None:
        self._requests = _Requests()
        self._closed = False
        own = torch.Generator("cpu").manual_seed(0)  # so that the seed for the workers is not drawn from the caller's
        self._loader: DataLoader[Fetched] = DataLoader(
            fetcher,
            batch_size=None,
            sampler=self._requests,
            num_workers=workers,
            prefetch_factor=prefetch,
            collate_fn=_as_it_is,  # without a batch size it gets what the data set returns
            pin_memory=pin,
            persistent_workers=True,
            generator=own,
        )

    def fetch(self, requests: Iterable[Request]) -> Iterator[Fetched]:
        if self._closed:
            raise DataError("this Loader was closed; make another one")
        if self._loader._iterator is None:
            _require_travelling(self._loader.dataset)
        self._requests.coming = requests
        try:
            with on_cpu():  # it draws a seed where tensors are made
                batches = iter(self._loader)
            yield from batches
        except Exception as error:
            self._end()
            if is_ended(error):
                raise ended(error) from error
            raise

    def close(self) -> None:
        self._closed = True
        self._end()

    def _end(self) -> None:
        iterator: Any = self._loader._iterator
        self._loader._iterator = None
        if iterator is not None:
            iterator._shutdown_workers()


def is_ended(error: Exception) -> bool:
    """Whether torch says with ``error`` that a worker process has ended. It does so wherever its parent just is."""
    return isinstance(error, RuntimeError) and str(error).startswith("DataLoader worker (pid")


def ended(error: Exception) -> DataError:
    """What became of the worker, in a sentence of ours."""
    return DataError(
        f"a worker process of the loader ended ({str(error).strip('. ')}); it may have run out of memory, or of shared "
        "memory in /dev/shm: take fewer workers or smaller batches"
    )


def _require_travelling(fetcher: Dataset[Fetched]) -> None:
    """Where processes do not begin as copies of this one: find out before one begins."""
    if multiprocessing.get_start_method() == "fork":
        return
    try:
        ForkingPickler.dumps(fetcher)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise DataError(
            f"the data set cannot be sent to worker processes ({error}); define it and its transform at the top of a "
            "module, or take workers=0"
        ) from error


def _as_it_is(fetched: Any) -> Any:
    return fetched
