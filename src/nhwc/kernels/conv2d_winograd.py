"""3x3 convolutions of images by Winograd's algorithm, forward and for the gradient of the input.

torch's own keep channels last, and take 2.25 times as many multiplications. Tiles of 2x2 results are more accurate than
a direct sum; those of 4x4, faster yet, can have more than twice its error and are left to the engine, which compares.
The gradient of the weight stays torch's.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from ctypes import addressof, c_int64

import torch

from nhwc.kernels import native
from nhwc.kernels.conv2d_operands import fits
from nhwc.kernels.dispatcher import is_plain
from nhwc.kernels.layouts import empty_channels_last, is_channels_last

#: (n, h, w, channels, columns, padding, threads, the answer).
_floats = native.Function("conv2d_winograd_floats", "lllllllp")
#: (x, weight, bias, y, memory, n, h, w, channels, columns, padding, strides of the weight, turned, threads).
_winograd = native.Function("conv2d_winograd", "pppppllllllllllll")

#: Of both channels, and of pixels: below, the transforms cost what the products save. Weights that are more than a
#: core's cache holds come from memory transformed, which takes more pixels to pay.
_LEAST_CHANNELS, _LEAST_PIXELS = 32, 64
_MANY_WEIGHTS, _LEAST_PIXELS_OF_MANY = 65_536, 256
#: Working memory beyond which torch's own run.
_MOST_FLOATS = 64 << 20


class _Memory(threading.local):
    """Working memory of a thread, as much as its largest call took: fresh memory would cost as much as the products."""

    held: torch.Tensor | None = None

    def of(self, floats: int) -> torch.Tensor:
        if self.held is None or self.held.numel() < floats:
            self.held = torch.empty(floats, dtype=torch.float32, device="cpu")
        return self.held


_MEMORY = _Memory()


def padding_served(
    input: torch.Tensor,  # noqa: A002
    weight: torch.Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> int | None:
    """How far the picture is padded, the same on all sides, where this serves the call, without groups; else None."""
    around = padding[0]
    columns, channels, height, width = weight.shape
    serves = (
        height == width == 3
        and set(stride) == set(dilation) == {1}
        and set(padding) == {around}
        and 0 <= around <= 2
        and min(columns, channels) >= _LEAST_CHANNELS
        and input.dim() == 4
        and input.shape[1] == channels
        and input.dtype == torch.float32
        and is_plain(input)
        and is_channels_last(input)
        and fits(weight, weight.shape)
        and min(input.shape[2:]) + 2 * around > 2
        and input.numel() // channels >= _least_pixels(columns * channels)
        and native.is_available()
    )
    return around if serves else None


def _least_pixels(weights: int) -> int:
    return _LEAST_PIXELS_OF_MANY if weights > _MANY_WEIGHTS else _LEAST_PIXELS


def convolved(
    image: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, padding: int, *, turned: bool
) -> torch.Tensor | None:
    """A picture, channels last, by a weight; turned: by the one that undoes it. None where memory would not do."""
    n, channels, height, width = image.shape
    by_column, by_channel = weight.stride()[:2][:: -1 if turned else 1]
    columns = weight.shape[1 if turned else 0]
    high, wide = height + 2 * padding - 2, width + 2 * padding - 2
    threads, floats = torch.get_num_threads(), c_int64()
    sizes = (n, height, width, channels, columns, padding)
    _floats(*sizes, threads, addressof(floats))
    if floats.value > _MOST_FLOATS:
        return None
    result = empty_channels_last((n, columns, high, wide), image)
    memory = _MEMORY.of(floats.value)
    bias = None if bias is None else bias.contiguous()
    strides = (by_column, by_channel, *weight.stride()[2:])
    _winograd(image, weight, bias, result, memory, *sizes, *strides, int(turned), threads)
    return result
