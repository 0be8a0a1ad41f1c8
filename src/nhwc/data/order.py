"""Which samples make which batch: a matter of seed and epoch alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral

import torch

from nhwc.data.seeding import seed_of
from nhwc.errors import DataError


def is_whole(value: object) -> bool:
    """Whether a caller gave a whole number, Python's or NumPy's."""
    return isinstance(value, Integral)


@dataclass(frozen=True)
class Order:
    """How ``length`` samples are dealt to ``world_size`` ranks in batches of ``batch_size`` each.

    Batch k of all ranks together holds the samples that batch k of a single process with ``batch_size * world_size``
    holds; rank r takes every ``world_size``-th of them, from the r-th on.
    """

    length: int
    batch_size: int
    shuffle: bool
    seed: int
    drop_last: bool
    rank: int
    world_size: int

    def __post_init__(self) -> None:
        if self.length < 1:
            raise DataError("the data set is empty")
        if not is_whole(self.batch_size) or self.batch_size < 1:
            raise DataError(f"batch_size={self.batch_size!r}: expected a whole number of at least 1")
        if not 0 <= self.rank < self.world_size:
            raise DataError(f"rank={self.rank} of world_size={self.world_size}: ranks count from 0 to world_size - 1")
        if self.drop_last and self.length < self.global_batch:
            raise DataError(
                f"drop_last leaves no batch: there are {self.length} samples, a batch of all ranks has "
                f"{self.global_batch}; take smaller batches"
            )

    @property
    def global_batch(self) -> int:
        return self.batch_size * self.world_size

    def __len__(self) -> int:
        """The number of batches of this rank: with ``drop_last`` that of every rank, without it 1 less for some."""
        whole, rest = divmod(self.length, self.global_batch)
        return whole + int(not self.drop_last and rest > self.rank)

    def batches(self, epoch: int, start: int = 0) -> Iterator[list[int]]:
        """The indices of each batch of this rank in ``epoch``, from batch number ``start`` on."""
        order = self._shuffled(epoch) if self.shuffle else torch.arange(self.length, device="cpu")
        for number in range(start, len(self)):
            first = number * self.global_batch
            yield order[first + self.rank : first + self.global_batch : self.world_size].tolist()

    def _shuffled(self, epoch: int) -> torch.Tensor:
        drawn = torch.Generator("cpu").manual_seed(seed_of(self.seed, epoch))
        return torch.randperm(self.length, generator=drawn, device="cpu")
