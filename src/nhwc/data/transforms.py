"""The two transforms of the usual training recipe, on uint8 pictures, H, W, C in memory before and after.

torchvision's v2 transforms give the same pixels, but its crops are views with gaps, which a resize answers contiguous.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from nhwc.errors import DataError

_TRIES = 10


@dataclass(frozen=True)
class TrainTransform:
    """A random part of the picture, resized to ``size`` and mirrored half of the time: see ``train_transform``."""

    size: tuple[int, int]
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5

    def __post_init__(self) -> None:
        _check_size(self.size)
        if not 0 < self.scale[0] <= self.scale[1] <= 1:
            raise DataError(f"scale={self.scale}: expected shares of the area, 0 < low <= high <= 1")
        if not 0 < self.ratio[0] <= self.ratio[1]:
            raise DataError(f"ratio={self.ratio}: expected widths over heights, 0 < low <= high")
        if not 0 <= self.flip <= 1:
            raise DataError(f"flip={self.flip}: expected a probability")

    def __call__(self, picture: torch.Tensor) -> torch.Tensor:
        _check_picture(picture)
        top, left, height, width = self.window(picture.shape[1], picture.shape[2])
        cut = resized(picture[:, top : top + height, left : left + width], self.size)
        return cut.flip(-1) if float(torch.rand((), device="cpu")) < self.flip else cut

    def window(self, height: int, width: int) -> tuple[int, int, int, int]:
        """A random window (top, left, height, width) of a picture of that size, drawn from torch's generator."""
        low, high = (math.log(each) for each in self.ratio)
        for _ in range(_TRIES):
            share, stretch, down, right = torch.rand(4, device="cpu").tolist()
            area = height * width * (self.scale[0] + (self.scale[1] - self.scale[0]) * share)
            ratio = math.exp(low + (high - low) * stretch)
            wide, tall = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < wide <= width and 0 < tall <= height:
                return int(down * (height - tall + 1)), int(right * (width - wide + 1)), tall, wide
        wide, tall = width, height  # the largest window of an allowed ratio, in the middle
        if width / height < self.ratio[0]:
            tall = max(1, min(height, round(width / self.ratio[0])))
        elif width / height > self.ratio[1]:
            wide = max(1, min(width, round(height * self.ratio[1])))
        return (height - tall) // 2, (width - wide) // 2, tall, wide


@dataclass(frozen=True)
class EvalTransform:
    """The picture with its shorter side resized to ``shorter``, cut to ``size`` in the middle."""

    size: tuple[int, int]
    shorter: int

    def __post_init__(self) -> None:
        _check_size(self.size)
        if self.shorter < max(self.size):
            raise DataError(f"resize={self.shorter} is smaller than the cut of {self.size[0]} x {self.size[1]}")

    def __call__(self, picture: torch.Tensor) -> torch.Tensor:
        _check_picture(picture)
        _channels, height, width = picture.shape
        if height <= width:
            larger = resized(picture, (self.shorter, max(self.shorter, int(self.shorter * width / height))))
        else:
            larger = resized(picture, (max(self.shorter, int(self.shorter * height / width)), self.shorter))
        top, left = (round((have - want) / 2) for have, want in zip(larger.shape[1:], self.size, strict=True))
        return larger[:, top : top + self.size[0], left : left + self.size[1]]


def train_transform(
    size: int | tuple[int, int],
    *,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
    flip: float = 0.5,
) -> TrainTransform:
    """A random window of the picture, resized to ``size`` (height, width; or one number for both), mirrored or not.

    scale: least and most share of the area. ratio: least and most width over height, before resizing.
    flip: how often it is mirrored. Random numbers come from torch's generator.
    """
    return TrainTransform(_pair(size), scale, ratio, flip)


def eval_transform(size: int | tuple[int, int], *, resize: int | None = None) -> EvalTransform:
    """The shorter side resized to ``resize``, and the middle of ``size`` (height, width; or one number for both).

    resize: by default ``size`` * 256 / 224, as the usual recipe has it.
    """
    pair = _pair(size)
    return EvalTransform(pair, round(max(pair) * 256 / 224) if resize is None else resize)


def applied(transform: Callable[[torch.Tensor], Any] | None, picture: torch.Tensor) -> Any:
    """What ``transform`` makes of a picture; without one the picture. Raises DataError where it takes no tensor."""
    if transform is None:
        return picture
    try:
        return transform(picture)
    except TypeError as error:
        if "PIL" not in str(error):
            raise
        raise DataError(
            f"the transform takes pictures of Pillow ({error}), but the data set has uint8 tensors (C, H, W); leave "
            "out ToTensor and PILToTensor, and take torchvision.transforms.v2 for the rest"
        ) from error


def resized(picture: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    """``picture`` (uint8 (C, H, W)) at another size, bilinear with antialiasing; H, W, C in memory."""
    rows = picture.permute(1, 2, 0).contiguous()  # torch resizes a window with gaps into a contiguous picture
    if tuple(picture.shape[1:]) == size:
        return rows.permute(2, 0, 1)
    # canonical strides, without which the answer is contiguous and takes longer
    batch = rows[None].permute(0, 3, 1, 2)
    made = functional.interpolate(batch, size, mode="bilinear", antialias=True)[0]
    return made.permute(1, 2, 0).contiguous().permute(2, 0, 1)


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (size[0], size[1])


def _check_size(size: tuple[int, int]) -> None:
    if min(size) < 1:
        raise DataError(f"size={size}: expected a height and a width of at least 1")


def _check_picture(picture: object) -> None:
    if not isinstance(picture, torch.Tensor) or picture.dim() != 3 or picture.dtype != torch.uint8:
        what = (
            f"{picture.dtype} of shape {tuple(picture.shape)}"
            if isinstance(picture, torch.Tensor)
            else type(picture).__name__
        )
        raise DataError(f"expected a picture, uint8 of shape (C, H, W) as nhwc.data.decode gives it, got {what}")
