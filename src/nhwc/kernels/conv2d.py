"""3x3 convolutions of images by Winograd's algorithm, forward and for the gradient of the input, in float32 on the CPU.

torch's own keep channels last, and take 2.25 times as many multiplications. Tiles of 2x2 results are more accurate than
a direct sum; those of 4x4, faster yet, can have more than twice its error and are left to the engine, which compares.
The gradient of the weight stays torch's.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from ctypes import addressof, c_int64
from typing import Any

import torch

from nhwc.kernels import native
from nhwc.kernels.dispatcher import is_plain
from nhwc.kernels.layouts import as_channels_last, empty_channels_last, is_channels_last
from nhwc.kernels.registry import kernel

CONV2D = kernel(
    "conv2d",
    "3x3 convolutions of images with stride 1, in float32, by Winograd's algorithm; their input's gradients too",
    native="torch's own run",
    ranks=(4,),
    native_only=("*",),
    mends=False,
)

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


@CONV2D.replaces("aten::convolution", keeps_strides=True)
def convolution(
    input: torch.Tensor,  # noqa: A002 torch's name
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    del output_padding
    around = _padding(input, weight, stride, padding, dilation, transposed, groups)
    if around is None or not (bias is None or _fits(bias, (weight.shape[0],))):
        return NotImplemented
    result = _convolved(input, weight, bias, around, turned=False)
    return NotImplemented if result is None else result


@CONV2D.replaces("aten::convolution_backward", keeps_strides=True)
def convolution_backward(
    grad_output: torch.Tensor,
    input: torch.Tensor,  # noqa: A002 torch's name
    weight: torch.Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> Any:
    around = _padding(input, weight, stride, padding, dilation, transposed, groups) if output_mask[0] else None
    if around is None or not is_plain(grad_output) or grad_output.dtype != torch.float32:
        return NotImplemented
    size = [each + 2 * around - 2 for each in input.shape[2:]]
    if list(grad_output.shape) != [input.shape[0], weight.shape[0], *size] or not grad_output.is_cpu:
        return NotImplemented
    grad = as_channels_last(grad_output)
    by_input = _convolved(grad, weight, None, 2 - around, turned=True)
    if by_input is None:
        return NotImplemented
    others = (bias_sizes, stride, padding, dilation, transposed, output_padding, groups)
    rest = [False, *output_mask[1:]]
    if not any(rest):
        return by_input, None, None
    return by_input, *torch.ops.aten.convolution_backward(grad, input, weight, *others, rest)[1:]


def _padding(
    input: torch.Tensor,  # noqa: A002
    weight: torch.Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    groups: int,
) -> int | None:
    """How far the picture is padded, the same on all sides, where the kernel serves the call; else None."""
    if weight.dim() != 4 or weight.shape[-1] != 3 or transposed or groups != 1:
        return None
    around = padding[0]
    columns, channels, height, width = weight.shape
    serves = (
        height == width
        and set(stride) == set(dilation) == {1}
        and set(padding) == {around}
        and 0 <= around <= 2
        and min(columns, channels) >= _LEAST_CHANNELS
        and input.dim() == 4
        and input.shape[1] == channels
        and input.dtype == torch.float32
        and is_plain(input)
        and is_channels_last(input)
        and _fits(weight, weight.shape)
        and min(input.shape[2:]) + 2 * around > 2
        and input.numel() // channels >= _least_pixels(columns * channels)
        and native.is_available()
    )
    return around if serves else None


def _least_pixels(weights: int) -> int:
    return _LEAST_PIXELS_OF_MANY if weights > _MANY_WEIGHTS else _LEAST_PIXELS


def _fits(tensor: torch.Tensor, shape: Sequence[int]) -> bool:
    plain = is_plain(tensor) and tensor.is_cpu and tensor.layout is torch.strided and not tensor.is_neg()
    return plain and tensor.dtype == torch.float32 and tuple(tensor.shape) == tuple(shape)


def _convolved(
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
