"""A data set that tells its samples apart, and what the tests of the loader ask of its batches."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

from nhwc.data import Loader, Unreadable


class Numbered(torch.utils.data.Dataset):
    """Pictures of their own index and of noise from three generators; ``asked`` holds what was asked for."""

    def __init__(self, length: int = 22, missing: tuple[int, ...] = ()) -> None:
        self.length, self.missing = length, missing
        self.asked: list[int] = []

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        self.asked.append(index)
        if index in self.missing:
            return Unreadable(f"picture {index}", "it is missing")
        picture = torch.full((4, 5, 3), index, dtype=torch.uint8, device="cpu")
        picture[0, 0] = torch.randint(0, 256, (3,), dtype=torch.uint8, device="cpu")
        picture[1, 0, 0] = random.randrange(256)
        picture[2, 0, 0] = np.random.randint(256)
        return picture.permute(2, 0, 1), index


def batches(loader: Loader, epoch: int = 0) -> list[tuple[torch.Tensor, list[int]]]:
    loader.set_epoch(epoch)
    return [(images.clone(), labels.tolist()) for images, labels in loader]


def same(first: list[Any], second: list[Any]) -> bool:
    return len(first) == len(second) and all(
        torch.equal(one[0], two[0]) and one[1] == two[1] for one, two in zip(first, second, strict=True)
    )
