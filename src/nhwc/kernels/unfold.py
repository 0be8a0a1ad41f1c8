"""unfold and fold: a channels-last image is cut into columns, or summed from them, without a contiguous copy of it.

The columns of ``unfold`` are contiguous, as torch's: code views them. Its gradient is in the image's format. ``fold``
sees no image: it answers channels last where each column's values lie side by side, as a Linear layer leaves them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch

from nhwc.kernels import native
from nhwc.kernels.dispatcher import is_plain, is_recorded
from nhwc.kernels.layouts import empty_channels_last, loops_serve
from nhwc.kernels.registry import kernel

UNFOLD = kernel(
    "unfold",
    "unfold and fold, forward and backward",
    native="torch's own kernels run: they copy the image to contiguous, and answer contiguous",
    native_only=("*",),
    ranks=(4,),
)

_unfold = native.Function("unfold", "ippp")
_fold = native.Function("fold", "ipppi")

#: Fewer channels than this fill no vector: torch's fold, which goes along the places, is then faster, copy included.
_FEWEST_CHANNELS = 8

#: kernel_size, dilation, padding, stride: as torch hands them over, each a height and a width.
_Windows = tuple[Sequence[int], Sequence[int], Sequence[int], Sequence[int]]


@UNFOLD.replaces("aten::im2col")
def im2col(
    self: torch.Tensor,
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Any:
    windows = kernel_size, dilation, padding, stride
    places = _places_in(self, windows)
    if places is None:
        return NotImplemented
    samples, channels, *size = self.shape
    columns = channels * kernel_size[0] * kernel_size[1]
    result = torch.empty((samples, columns, places[0] * places[1]), dtype=self.dtype, device="cpu")
    _unfold(self.element_size(), self, result, _sizes((samples, channels, *size), windows, places))
    return result


@UNFOLD.replaces("aten::im2col", "AutogradCPU")
def im2col_differentiable(
    self: torch.Tensor,
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Any:
    windows = kernel_size, dilation, padding, stride
    if not is_recorded(self) or _places_in(self, windows) is None:
        return NotImplemented
    return _Unfolded.apply(self, windows)


@UNFOLD.replaces("aten::col2im")
def col2im(
    self: torch.Tensor,
    output_size: Sequence[int],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Any:
    windows = kernel_size, dilation, padding, stride
    if not _lies_by_place(self) or not _are_valid(windows) or len(output_size) != 2 or min(output_size) < 1:
        return NotImplemented
    samples, columns, length = self.shape
    places = _places(output_size, windows)
    window = kernel_size[0] * kernel_size[1]
    channels, rest = divmod(columns, window)
    if min(places) < 1 or places[0] * places[1] != length or rest or channels < _FEWEST_CHANNELS:
        return NotImplemented
    shape = samples, channels, *output_size
    result = empty_channels_last(shape, self)
    _fold(native.dtype_code(self.dtype), self, result, _sizes(shape, windows, places), 1)
    return result


class _Unfolded(torch.autograd.Function):
    """The operator itself; its backward knows the image's format, which torch's fold of a gradient does not."""

    @staticmethod
    def forward(ctx: Any, image: torch.Tensor, windows: _Windows) -> torch.Tensor:
        ctx.shape, ctx.windows = tuple(image.shape), windows
        result = torch.ops.aten.im2col.default(image, *windows)
        assert isinstance(result, torch.Tensor)
        return result

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        grad = grads[0]
        if torch.is_grad_enabled() or not is_plain(grad):
            folded = torch.ops.aten.col2im.default(grad, ctx.shape[2:], *ctx.windows)
            return folded.contiguous(memory_format=torch.channels_last) if is_plain(grad) else folded, None
        result = empty_channels_last(ctx.shape, grad)
        by_place = ctx.shape[1] >= _FEWEST_CHANNELS and _lies_by_place(grad)
        columns = grad if by_place else grad.resolve_neg().contiguous()
        sizes = _sizes(ctx.shape, ctx.windows, _places(ctx.shape[2:], ctx.windows))
        _fold(native.dtype_code(grad.dtype), columns, result, sizes, int(by_place))
        return result, None


def _places_in(image: torch.Tensor, windows: _Windows) -> tuple[int, int] | None:
    """How many windows fit into an image that the kernel takes, down and across; None where it steps aside."""
    if image.dim() != 4 or not loops_serve(image) or not _are_valid(windows):
        return None
    places = _places(image.shape[2:], windows)
    return places if min(places) > 0 else None


def _places(size: Sequence[int], windows: _Windows) -> tuple[int, int]:
    high, wide = (
        (length + 2 * pad - dilation * (window - 1) - 1) // step + 1
        for length, window, dilation, pad, step in zip(size, *windows, strict=True)
    )
    return high, wide


def _are_valid(windows: _Windows) -> bool:
    kernel_size, dilation, padding, stride = windows
    return all(len(each) == 2 for each in windows) and min(*kernel_size, *dilation, *stride) > 0 and min(padding) >= 0


def _lies_by_place(columns: torch.Tensor) -> bool:
    """Whether (samples, channels * window, places) columns keep the values of each place side by side."""
    return (
        columns.dim() == 3
        and columns.stride(1) == 1
        and columns.shape[1] > 1
        and columns.shape[2] > 1
        and columns.stride(2) == columns.shape[1]
        and (columns.shape[0] == 1 or columns.stride(0) == columns.shape[1] * columns.shape[2])
        and native.is_available()
        and columns.device.type == "cpu"
        and is_plain(columns)
        and columns.numel() > 0
        and not columns.is_neg()
        and native.dtype_code(columns.dtype) is not None
    )


def _sizes(shape: Sequence[int], windows: _Windows, places: tuple[int, int]) -> Any:
    values = (*shape, *(number for pair in windows for number in pair), *places)
    return (ctypes.c_int64 * 14)(*values)
