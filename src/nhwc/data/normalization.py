"""8-bit pictures → numbers that a model takes, in one pass and in channels last."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from nhwc.errors import DataError
from nhwc.formats import to_format
from nhwc.kernels import native
from nhwc.kernels.dispatcher import is_plain
from nhwc.kernels.layouts import empty_channels_last

#: (dtype code, source, target, pixels, channels, means, stds).
_normalize = native.Function("normalize", "ippllpp")

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)

#: What is beyond these is no picture from 0 to 1.
_LOW, _HIGH = -0.5, 1.5


def normalize(
    images: torch.Tensor,
    mean: Sequence[float] | float,
    std: Sequence[float] | float,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """``(images / 255 - mean) / std`` as ``dtype``, in channels last.

    images: uint8 (N, C, H, W), best in channels last; floating-point ones from 0 to 1 are not divided by 255.
        Floating-point ones far outside, below -0.5 or above 1.5, are refused (which waits for their device).
    mean, std: a number per channel, or one for all. dtype: float32, bfloat16, float16 or float64.

    On the CPU the bits are those of torchvision's ToTensor and Normalize; the 16-bit types are computed in float32 and
    rounded once. Other devices take two operators, near to that by a few units in the last place of float32.

    Raises DataError for other shapes, dtypes and ranges, and for numbers that do not fit the channels.
    """
    _check(images, dtype)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    means, stds = constants(mean, std, images.shape[1], wide, images.device)
    last = to_format(images, "channels_last")
    if images.dtype != torch.uint8:
        _require_range(images)
        return last.to(wide, copy=True).sub_(means).div_(stds).to(dtype)
    if _is_compiled_for(last):
        return _in_one_pass(last, means, stds, dtype)
    if images.device.type == "cpu":
        return last.to(wide).div_(255).sub_(means).div_(stds).to(dtype)
    return in_two_operators(last, means, stds, dtype)


def in_two_operators(images: torch.Tensor, means: torch.Tensor, stds: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """8-bit ``images`` normalised in two passes: the first makes floating point of them, the second ``dtype``."""
    result = torch.empty_like(images, dtype=dtype)
    return torch.mul(images - means * 255, 1 / (stds * 255), out=result)


def _is_compiled_for(last: torch.Tensor) -> bool:
    return (
        last.device.type == "cpu"
        and last.numel() > 0
        and not torch.compiler.is_compiling()
        and is_plain(last)
        and native.is_available()
    )


def _in_one_pass(last: torch.Tensor, means: torch.Tensor, stds: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    samples, channels, height, width = last.shape
    result = empty_channels_last(last.shape, last, dtype)
    _normalize(native.dtype_code(dtype), last, result, samples * height * width, channels, means, stds)
    return result


def _check(images: object, dtype: torch.dtype) -> None:
    if not isinstance(images, torch.Tensor) or images.dim() != 4:
        what = tuple(images.shape) if isinstance(images, torch.Tensor) else type(images).__name__
        raise DataError(f"expected pictures of shape (N, C, H, W), got {what}")
    if dtype not in DTYPES:
        raise DataError(f"dtype={dtype}: expected one of {', '.join(map(str, DTYPES))}")
    if images.dtype != torch.uint8 and images.dtype not in DTYPES:
        raise DataError(f"pictures of {images.dtype}: expected uint8 from 0 to 255, or floating point from 0 to 1")


def _require_range(images: torch.Tensor) -> None:
    """Refuse what is normalised already, or goes to 255; a filter or some noise may reach a little beyond 0 and 1."""
    if not images.numel() or not is_plain(images) or images.is_meta or torch.compiler.is_compiling():
        return
    low, high = (float(each) for each in images.detach().aminmax())
    if low < _LOW or high > _HIGH:
        raise DataError(
            f"floating-point pictures from {low:.4g} to {high:.4g}: expected 0 to 1; hand out uint8 (drop ToTensor and "
            "Normalize from the transform), or leave out mean and std where they are normalised already"
        )


def constants(
    mean: Sequence[float] | float, std: Sequence[float] | float, channels: int, dtype: torch.dtype, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and standard deviation as tensors (1, C, 1, 1), checked."""
    means, stds = _numbers("mean", mean, channels), _numbers("std", std, channels)
    if min(stds) <= 0:
        raise DataError(f"std={std}: expected numbers above 0")
    made = (
        torch.tensor([means, stds], dtype=dtype, device="cpu").to(device, non_blocking=True).view(2, 1, channels, 1, 1)
    )
    return made[0], made[1]


def _numbers(name: str, values: Sequence[float] | float, channels: int) -> list[float]:
    found = [float(values)] if isinstance(values, int | float) else [float(each) for each in values]
    if len(found) not in {1, channels}:
        raise DataError(f"{name} has {len(found)} numbers for pictures of {channels} channels; give one for each")
    if not all(map(math.isfinite, found)):
        raise DataError(f"{name}={values}: expected finite numbers")
    return found * channels if len(found) == 1 else found
