"""deform_conv2d: columns of sampled rows of channels, times the weights in rows of channels.

torchvision's kernel copies its operands to contiguous, samples channel by channel on one thread and answers contiguous.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from nhwc.kernels import native
from nhwc.kernels.dispatcher import is_plain
from nhwc.kernels.layouts import (
    as_channels_last,
    empty_channels_last,
    from_rows,
    is_channels_last,
    loops_serve,
    rows_of,
    transpose,
)
from nhwc.kernels.registry import kernel

DEFORM_CONV = kernel(
    "deform_conv2d",
    "torchvision's deform_conv2d, forward and backward",
    native="torchvision's own kernels run: they copy their operands, and answer contiguous",
    native_only=("*",),
    needs="torchvision",
    ranks=(4,),
)

_sample = native.Function("deform_sample", "ipppppll")
_move = native.Function("deform_move", "ipppppppll")
_scatter = native.Function("deform_scatter", "ipppppll")

_DTYPES = (torch.float32, torch.float64)
#: Columns of about this many bytes at a time stay in the cache; of fewer places the matrix product is slow.
_COLUMN_BYTES, _FEWEST_PLACES = 4 << 20, 256


@dataclass(frozen=True)
class _Call:
    """The operands of a call that the kernel takes, and how its columns are cut.

    size: of the result, height and width. sizes: what the compiled loops want to know.
    """

    image: torch.Tensor
    weight: torch.Tensor
    offset: torch.Tensor
    mask: torch.Tensor | None
    groups: int
    size: tuple[int, int]
    sizes: Any

    @property
    def code(self) -> int | None:
        return native.dtype_code(self.image.dtype)

    @property
    def columns(self) -> int:
        """How many values of a weight group each place has."""
        return self.weight[0].numel()

    def rows_of_weight(self) -> torch.Tensor:
        """(groups, results of a group, window * channels of a group), in rows of channels."""
        return rows_of(as_channels_last(self.weight)).view(self.groups, -1, self.columns)

    def chunks(self) -> Iterator[tuple[int, int]]:
        """The first place of each chunk, and the number of its places."""
        places = self.image.shape[0] * self.size[0] * self.size[1]
        longest = max(_FEWEST_PLACES, _COLUMN_BYTES // (self.groups * self.columns * self.image.element_size()))
        for first in range(0, places, longest):
            yield first, min(longest, places - first)

    def buffer(self) -> torch.Tensor:
        """Room for the columns of the longest chunk."""
        _, longest = next(self.chunks())
        return torch.empty(self.groups * longest * self.columns, dtype=self.image.dtype, device="cpu")

    def columns_in(self, buffer: torch.Tensor, count: int) -> torch.Tensor:
        """The (groups, count, columns) beginning of a buffer."""
        return buffer[: self.groups * count * self.columns].view(self.groups, count, self.columns)

    def sample(self, buffer: torch.Tensor, first: int, count: int) -> torch.Tensor:
        columns = self.columns_in(buffer, count)
        _sample(self.code, self.image, self.offset, self.mask, columns, self.sizes, first, count)
        return columns


@DEFORM_CONV.replaces("torchvision::deform_conv2d")
def deform_conv2d(
    input: torch.Tensor,  # noqa: A002 torchvision's name
    weight: torch.Tensor,
    offset: torch.Tensor,
    mask: torch.Tensor,
    bias: torch.Tensor,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> Any:
    windows = (stride_h, stride_w), (pad_h, pad_w), (dilation_h, dilation_w)
    call = _call(input, weight, offset, mask if use_mask else None, bias, windows, groups, offset_groups)
    if call is None or (not use_mask and mask.shape[0] != input.shape[0]):
        return NotImplemented
    result = empty_channels_last((input.shape[0], weight.shape[0], *call.size), input)
    rows = rows_of(result).view(-1, groups, weight.shape[0] // groups)
    weights, biases, buffer = call.rows_of_weight(), bias.view(groups, -1), call.buffer()
    for first, count in call.chunks():
        columns = call.sample(buffer, first, count)
        for group in range(groups):
            out = rows[first : first + count, group]
            torch.addmm(biases[group], columns[group], weights[group].t(), out=out)
    return result


@DEFORM_CONV.replaces("torchvision::_deform_conv2d_backward")
def deform_conv2d_backward(
    grad: torch.Tensor,
    input: torch.Tensor,  # noqa: A002
    weight: torch.Tensor,
    offset: torch.Tensor,
    mask: torch.Tensor,
    bias: torch.Tensor,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> Any:
    windows = (stride_h, stride_w), (pad_h, pad_w), (dilation_h, dilation_w)
    call = _call(input, weight, offset, mask if use_mask else None, bias, windows, groups, offset_groups)
    if call is None or not is_plain(grad) or grad.dtype != input.dtype or grad.device.type != "cpu":
        return NotImplemented
    if grad.shape != (input.shape[0], weight.shape[0], *call.size):
        return NotImplemented
    rows = rows_of(as_channels_last(grad)).view(-1, groups, weight.shape[0] // groups)
    grad_input = empty_channels_last(input.shape, input).zero_()
    grad_offset = empty_channels_last(offset.shape, offset)
    grad_mask = empty_channels_last(mask.shape, mask) if use_mask else torch.zeros_like(mask)
    weights, buffer = call.rows_of_weight(), call.buffer()
    grad_weights = torch.zeros_like(weights)
    for first, count in call.chunks():
        gradients = call.columns_in(buffer, count)
        some = rows[first : first + count]
        for group in range(groups):
            torch.mm(some[:, group], weights[group], out=gradients[group])
        moved = (grad_offset, grad_mask if use_mask else None)
        _move(call.code, input, offset, call.mask, gradients, *moved, call.sizes, first, count)
        _scatter(call.code, offset, call.mask, gradients, grad_input, call.sizes, first, count)
        columns = call.sample(buffer, first, count)
        for group in range(groups):
            grad_weights[group].addmm_(some[:, group].t(), columns[group])
    grad_weight = _laid_out_like(weight, grad_weights)
    return grad_input, grad_weight, grad_offset, grad_mask, rows.sum(0).view(-1)


def _laid_out_like(weight: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """A gradient in rows of channels as a tensor of the weight's shape and format."""
    results, channels, high, wide = weight.shape
    gradient = from_rows(rows.view(results, high, wide, channels))
    if is_channels_last(weight):
        return gradient
    contiguous = torch.empty(weight.shape, dtype=weight.dtype, device="cpu")
    return contiguous if transpose(gradient, contiguous) else contiguous.copy_(gradient)


def _call(
    image: torch.Tensor,
    weight: torch.Tensor,
    offset: torch.Tensor,
    mask: torch.Tensor | None,
    bias: torch.Tensor,
    windows: tuple[tuple[int, int], tuple[int, int], tuple[int, int]],
    groups: int,
    offset_groups: int,
) -> _Call | None:
    """The call as the compiled loops take it; None where torchvision's kernel has to answer, or to complain."""
    others = (weight, offset, bias) if mask is None else (weight, offset, bias, mask)
    if image.dim() != 4 or not loops_serve(image) or image.dtype not in _DTYPES:
        return None
    if not all(_is_alike(each, image) for each in others) or bias.shape != weight.shape[:1]:
        return None
    stride, padding, dilation = windows
    if min(*stride, *dilation, groups, offset_groups) < 1 or min(padding) < 0:
        return None
    results, channels, *window = weight.shape if weight.dim() == 4 else (0, 0, 0, 0)
    if min(results, channels, *window) < 1 or results % groups or channels * groups != image.shape[1]:
        return None
    high, wide = (
        (length + 2 * pad - spread * (extent - 1) - 1) // step + 1
        for length, extent, step, pad, spread in zip(image.shape[2:], window, *windows, strict=True)
    )
    values = offset_groups * window[0] * window[1]
    if (
        min(high, wide) < 1
        or image.shape[1] % offset_groups
        or offset.shape != (image.shape[0], 2 * values, high, wide)
    ):
        return None
    if mask is not None and mask.shape != (image.shape[0], values, high, wide):
        return None
    pairs = ((high, wide), window, *windows)
    numbers = (*image.shape, *(number for pair in pairs for number in pair), groups, offset_groups, *offset.stride())
    sizes = (ctypes.c_int64 * 24)(*numbers, *(mask.stride() if mask is not None else (0, 0, 0, 0)))
    return _Call(image, weight, offset, mask, groups, (high, wide), sizes)


def _is_alike(tensor: torch.Tensor, image: torch.Tensor) -> bool:
    return (
        is_plain(tensor)
        and tensor.device.type == "cpu"
        and tensor.dtype == image.dtype
        and tensor.layout == torch.strided
    )
