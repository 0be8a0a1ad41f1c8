"""Padding on channels-last rows in every mode, forward and backward, in one pass.

torch's circular padding fills a contiguous tensor slice by slice; a constant padding's gradient has the format of the
one that comes in.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch

from nhwc.kernels import resample_taps
from nhwc.kernels.dispatcher import is_plain, tracks_forward_gradients
from nhwc.kernels.incoming import with_gradient_in_channels_last
from nhwc.kernels.layouts import as_channels_last, from_rows, is_channels_last, loops_serve, rows_of
from nhwc.kernels.registry import kernel
from nhwc.kernels.resample import resampled

PAD = kernel(
    "pad",
    "padding in every mode, forward and backward",
    native="circular padding runs as index_select; all else is torch's own",
    native_only=("*_backward",),
)

#: Modes whose paddings may be negative.
_CUTTING = ("constant", "circular")
#: How much more than the size of a dimension it may be padded by; without limit in the others.
_BEYOND = {"reflect": -1, "circular": 0}


@lru_cache(maxsize=256)
def _table(mode: str, sizes: tuple[int, ...], padding: tuple[int, ...], transposed: bool) -> torch.Tensor:
    dimensions = _dimensions(mode, sizes, padding)
    return resample_taps.table([each.transposed() for each in dimensions] if transposed else dimensions)


def _dimensions(mode: str, sizes: Sequence[int], padding: Sequence[int]) -> list[resample_taps.Taps]:
    """torch lists the padding from the last dimension on: before and after each."""
    pairs = list(zip(padding[::2], padding[1::2], strict=True))[::-1]
    return [resample_taps.padded(mode, size, *pair) for size, pair in zip(sizes, pairs, strict=True)]


def _shape(sizes: Sequence[int], padding: Sequence[int]) -> tuple[int, ...]:
    last = len(sizes) - 1
    return tuple(size + padding[2 * (last - d)] + padding[2 * (last - d) + 1] for d, size in enumerate(sizes))


@PAD.replaces("aten::_pad_circular", "CompositeImplicitAutograd")
def pad_circular(self: torch.Tensor, pad: Sequence[int]) -> Any:
    if not (is_plain(self) and is_channels_last(self) and self.numel()) or tracks_forward_gradients():
        return NotImplemented
    sizes, padding = tuple(self.shape[2:]), tuple(pad)
    if not _fits("circular", sizes, padding):
        return NotImplemented
    if not loops_serve(self):
        return _picked(self, _dimensions("circular", sizes, padding))
    if self.requires_grad and torch.is_grad_enabled():
        return _Circular.apply(self, sizes, padding, False)
    return _circular(self, sizes, padding, False)


def _circular(source: torch.Tensor, sizes: tuple[int, ...], padding: tuple[int, ...], back: bool) -> torch.Tensor:
    shape = sizes if back else _shape(sizes, padding)
    return resampled(as_channels_last(source.resolve_neg()), shape, _table("circular", sizes, padding, back))


class _Circular(torch.autograd.Function):
    """Padding of an image of spatial ``sizes``, or its gradient (``back``), each the other's gradient."""

    @staticmethod
    def forward(
        ctx: Any, source: torch.Tensor, sizes: tuple[int, ...], padding: tuple[int, ...], back: bool
    ) -> torch.Tensor:
        ctx.of = sizes, padding, not back
        return _circular(source, sizes, padding, back)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        sizes, padding, back = ctx.of
        if not is_plain(grads[0]):
            return _without_loops(grads[0], sizes, padding, back), None, None, None
        return _Circular.apply(grads[0], sizes, padding, back), None, None, None


def _without_loops(source: torch.Tensor, sizes: tuple[int, ...], padding: tuple[int, ...], back: bool) -> torch.Tensor:
    """The same by torch's operators, for a tensor that vmap wraps."""
    dimensions = _dimensions("circular", sizes, padding)
    for dim, taps in enumerate(dimensions, 2):
        if back:
            shape = (*source.shape[:dim], sizes[dim - 2], *source.shape[dim + 1 :])
            source = source.new_zeros(shape).index_add(dim, taps.inputs, source)
        else:
            source = source.index_select(dim, taps.inputs)
    return source


def _picked(source: torch.Tensor, dimensions: Sequence[resample_taps.Taps]) -> torch.Tensor:
    rows = rows_of(source)
    for dim, taps in enumerate(dimensions, 1):
        if taps.sizes[0] != taps.sizes[1] or not torch.equal(taps.inputs, taps.outputs):
            rows = rows.index_select(dim, taps.inputs)
    return from_rows(rows)


@PAD.replaces("aten::constant_pad_nd", "AutogradCPU")
def constant_pad_nd(self: torch.Tensor, pad: Sequence[int], value: float = 0) -> Any:  # noqa: ARG001 torch's signature
    return with_gradient_in_channels_last(self)


@PAD.replaces("aten::constant_pad_nd")
def constant_pad_nd_forward(self: torch.Tensor, pad: Sequence[int], value: float = 0) -> Any:
    """Its backward too, which cuts off what it added."""
    if value != 0 or not loops_serve(self):
        return NotImplemented
    sizes = tuple(self.shape[2:])
    padding = (*pad, *(0,) * (2 * len(sizes) - len(pad)))  # given for some of the last dimensions only
    if not _fits("constant", sizes, padding):
        return NotImplemented
    return resampled(self, _shape(sizes, padding), _table("constant", sizes, padding, False))


def _register(name: str, mode: str, rank: int) -> None:
    # forward torch keeps the format, as fast as ours would
    @PAD.replaces(f"aten::{name}_backward")
    def backward(grad_output: torch.Tensor, self: torch.Tensor, padding: Sequence[int]) -> Any:
        if self.dim() != rank or not loops_serve(self):
            return NotImplemented
        if not (is_plain(grad_output) and grad_output.dtype == self.dtype and grad_output.device == self.device):
            return NotImplemented
        sizes, padding = tuple(self.shape[2:]), tuple(padding)
        if not _fits(mode, sizes, padding) or grad_output.shape != (*self.shape[:2], *_shape(sizes, padding)):
            return NotImplemented
        return resampled(as_channels_last(grad_output), sizes, _table(mode, sizes, padding, True))


def _fits(mode: str, sizes: tuple[int, ...], padding: tuple[int, ...]) -> bool:
    """Whether torch takes it, and all of it is space."""
    if len(padding) != 2 * len(sizes) or min(_shape(sizes, padding)) < 1:
        return False
    for place, size in enumerate(reversed(sizes)):
        low, high = sorted(padding[2 * place : 2 * place + 2])
        if low < (1 - size if mode in _CUTTING else 0) or high > size + _BEYOND.get(mode, high):
            return False
        # torch's circular padding copies what it has not written yet where less is left than it adds
        if mode == "circular" and low < 0 < high and size + low < high:
            return False
    return True


for _mode, _operator in (("reflect", "reflection_pad"), ("replicate", "replication_pad")):
    _register(f"{_operator}2d", _mode, 4)
    _register(f"{_operator}3d", _mode, 5)
