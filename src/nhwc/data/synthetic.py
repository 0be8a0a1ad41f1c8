"""Pictures made of numbers, for measurements and for a first run without data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import Dataset

from nhwc.data.seeding import seed_of
from nhwc.data.transforms import applied
from nhwc.errors import DataError

#: A picture is a window into so many values more than it has: noise at the price of a copy.
_ROOM = 1 << 16


class Synthetic(Dataset[Any]):
    """``length`` pictures of noise, uint8 ``shape`` (C, H, W), tinted by their label, so that a model can learn them.

    The same arguments give the same pictures and labels, whatever order they are asked in.
    """

    def __init__(
        self,
        length: int,
        shape: tuple[int, int, int] = (3, 224, 224),
        classes: int = 1000,
        seed: int = 0,
        transform: Callable[[torch.Tensor], Any] | None = None,
    ) -> None:
        if min(length, classes, *shape) < 1:
            raise DataError(
                f"length={length}, shape={shape}, classes={classes}: expected sizes of at least 1, (C, H, W)"
            )
        self.length, self.shape, self.seed, self.transform = length, tuple(shape), seed, transform
        self.classes = [str(label) for label in range(classes)]
        channels, height, width = shape
        made = torch.Generator("cpu").manual_seed(seed_of(seed))
        self._size = channels * height * width
        self._noise = torch.randint(0, 128, (self._size + _ROOM,), dtype=torch.uint8, generator=made, device="cpu")
        self._tints = torch.randint(0, 128, (classes, channels), dtype=torch.uint8, generator=made, device="cpu")

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Any, int]:
        if not -self.length <= index < self.length:
            raise IndexError(f"item {index} of {self.length}")
        drawn = seed_of(self.seed, index % self.length)
        label, start = drawn % len(self.classes), (drawn >> 32) % _ROOM
        channels, height, width = self.shape
        rows = self._noise[start : start + self._size].view(height, width, channels) + self._tints[label]
        picture = rows.permute(2, 0, 1)
        return applied(self.transform, picture), label
