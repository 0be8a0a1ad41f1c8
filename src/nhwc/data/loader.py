"""From a data set to batches on the device: channels last, normalised, in an order that can be taken up again."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from nhwc.data.fetching import Fetched, Fetcher, Here, Request
from nhwc.data.moving import ahead, to_device
from nhwc.data.normalization import DTYPES, normalize
from nhwc.data.order import Order, is_whole
from nhwc.data.unreadable import Unreadable
from nhwc.data.workers import InWorkers
from nhwc.errors import DataError

_UNREADABLE = ("drop", "replace")


class Loader:
    """Batches of ``dataset`` (map-style: ``len`` and an index), in channels last, on ``device``.

    batch_size: samples per batch and rank. drop_last: leave out the last batch where it is smaller.
    shuffle, seed: the order depends on the seed and the epoch alone, and random transforms draw from (seed, epoch,
        index): batches are the same with any number of workers. The caller's random state stays as it is.
    workers: processes that fetch ahead, ``prefetch`` batches each; 0 fetches in this one.
    rank, world_size: the part of this process: batch k of all ranks together is batch k of one process with
        ``batch_size * world_size``. Train with ``drop_last=True``, else some ranks may have a batch more.
    device: where batches go; to CUDA from pinned memory, one batch ahead, beside the caller's stream.
    mean, std: normalise the pictures, as ``normalize`` does, to ``dtype``; without them they stay as they are.
    unreadable: "drop" makes the batch smaller by a sample that cannot be read (and skips one that has none left),
        "replace" takes the next readable one of the data set, so that shapes stay equal on all ranks.

    Samples are pictures, or tuples with a picture first, or, without ``mean``, anything that ``collate`` takes.

    skipped: name → reason of every sample that could not be read; each is warned of once. times_skipped: how often.
    Raises DataError for options that do not fit together.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        *,
        shuffle: bool = False,
        seed: int = 0,
        workers: int = 0,
        prefetch: int = 2,
        drop_last: bool = False,
        rank: int = 0,
        world_size: int = 1,
        device: str | torch.device = "cpu",
        mean: Sequence[float] | float | None = None,
        std: Sequence[float] | float | None = None,
        dtype: torch.dtype = torch.float32,
        unreadable: str = "drop",
    ) -> None:
        if not is_whole(workers) or not is_whole(prefetch) or workers < 0 or prefetch < 1:
            raise DataError(f"workers={workers!r}, prefetch={prefetch!r}: expected whole numbers, at least 0 and 1")
        if unreadable not in _UNREADABLE:
            raise DataError(f"unreadable={unreadable!r}: expected one of {', '.join(_UNREADABLE)}")
        if (mean is None) != (std is None):
            raise DataError("mean and std normalise together; give both or neither")
        if dtype not in DTYPES:
            raise DataError(f"dtype={dtype}: expected one of {', '.join(map(str, DTYPES))}")
        self.dataset = dataset
        self.device = _device(device)
        self.skipped: dict[str, str] = {}
        self.times_skipped = 0
        self._order = Order(_length(dataset), batch_size, shuffle, seed, drop_last, rank, world_size)
        self._mean, self._std, self._dtype = mean, std, dtype
        fetcher = Fetcher(dataset, self._order.length, seed, unreadable == "replace")
        pin = self.device.type == "cuda"
        self._source = InWorkers(fetcher, pin, workers, prefetch) if workers else Here(fetcher, pin)
        self._epoch = self._position = self._resume_at = self._turn = 0

    def __len__(self) -> int:
        """Batches in an epoch, for this rank."""
        return len(self._order)

    @property
    def epoch(self) -> int:
        return self._epoch

    def set_epoch(self, epoch: int) -> None:
        """Iterate over ``epoch`` from now on. The one that a loaded state stands in goes on where it was."""
        if epoch != self._epoch:
            self._epoch, self._position, self._resume_at = epoch, 0, 0

    def state_dict(self) -> dict[str, int]:
        """Where the iteration stands: the batches handed out, whatever was fetched ahead. Whole numbers only."""
        order = self._order
        return {
            "epoch": self._epoch,
            "position": self._position,
            "global_batch": order.global_batch,
            "seed": order.seed,
            "length": order.length,
            "shuffle": int(order.shuffle),
        }

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Go on where ``state`` was taken: the next iteration begins behind the last batch handed out.

        The number of ranks may differ. Raises DataError where data, seed or order differ, or where the samples handed
        out make no whole number of batches; nothing has changed then.
        """
        now = self.state_dict()
        if missing := sorted(set(now) - set(state)):
            raise DataError(f"this is no state of a Loader: {', '.join(missing)} missing")
        for name in ("seed", "length", "shuffle"):
            if state[name] != now[name]:
                raise DataError(f"the state was saved with {name}={state[name]}, this Loader has {name}={now[name]}")
        handed_out = state["position"] * state["global_batch"]
        position, rest = divmod(handed_out, now["global_batch"])
        if handed_out >= now["length"]:
            position = len(self)
        elif rest:
            raise DataError(
                f"{handed_out} samples of the epoch were handed out, which is no whole number of batches of "
                f"{now['global_batch']}; take the batch size and ranks of before until the epoch ends"
            )
        self._epoch, self._position, self._resume_at = state["epoch"], position, position
        self._turn += 1

    def __iter__(self) -> Iterator[Any]:
        start, self._resume_at = self._resume_at, 0
        self._position = start
        self._turn += 1
        return self._handed_out(self._turn, start)

    def _handed_out(self, turn: int, start: int) -> Iterator[Any]:
        epoch = self._epoch
        requests = (Request(epoch, indices) for indices in self._order.batches(epoch, start))
        coming = ahead(self._source.fetch(requests), self._ready, self.device)
        while (following := self._next(coming, turn)) is not None:
            self._position += 1
            parts, unreadable = following
            self._note(unreadable)
            if parts is not None:
                yield parts

    def _next(self, coming: Iterator[tuple[Any, list[Unreadable]]], turn: int) -> tuple[Any, list[Unreadable]] | None:
        if turn != self._turn:
            raise DataError(
                "this iteration ended when another one of the same Loader began, or when it was closed or loaded a "
                "state; use a Loader for each iteration"
            )
        return next(coming, None)

    def _ready(self, fetched: Fetched) -> tuple[Any, list[Unreadable]]:
        if fetched.failure is not None:
            raise fetched.failure
        if fetched.parts is None:
            return None, fetched.unreadable
        parts = to_device(fetched.parts, self.device)
        return (parts if self._mean is None else self._normalized(parts)), fetched.unreadable

    def _normalized(self, parts: Any) -> Any:
        assert self._mean is not None
        assert self._std is not None
        images = parts[0] if isinstance(parts, list | tuple) else parts
        if not isinstance(images, torch.Tensor):
            raise DataError("mean and std need samples that are a picture, or a tuple with a picture first")
        made = normalize(images, self._mean, self._std, self._dtype)
        if images is parts:
            return made
        return type(parts)(made, *parts[1:]) if hasattr(parts, "_fields") else [made, *parts[1:]]

    def _note(self, unreadable: list[Unreadable]) -> None:
        self.times_skipped += len(unreadable)
        for each in unreadable:
            if each.name not in self.skipped:
                self.skipped[each.name] = each.reason
                warnings.warn(f"cannot be read and is skipped: {each}", stacklevel=3)

    def close(self) -> None:
        """End the worker processes; a Loader that is collected as garbage does so by itself."""
        self._turn += 1
        self._source.close()


def _device(named: str | torch.device) -> torch.device:
    try:
        return torch.device(named)
    except RuntimeError as error:
        raise DataError(f"device={named!r}: expected one such as cpu or cuda:0") from error


def _length(dataset: Any) -> int:
    try:
        return len(dataset)
    except TypeError as error:
        raise DataError(
            f"{type(dataset).__name__} has no length; a Loader takes map-style data sets, with len() and an index"
        ) from error
