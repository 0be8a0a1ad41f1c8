"""Picking channels, rows or columns by an index tensor, and rolling: on the (N, ..., C) view, which stays dense."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from nhwc.kernels import gpu, native
from nhwc.kernels.dispatcher import is_plain, tracks_forward_gradients
from nhwc.kernels.incoming import with_gradient_in_channels_last
from nhwc.kernels.layouts import (
    empty_channels_last,
    from_rows,
    is_channels_last,
    lies_channels_last,
    loops_serve,
    row_dim,
    rows_of,
)
from nhwc.kernels.registry import kernel

INDEX = kernel("indexing", "index_select, and indexing by one tensor, as in x[:, order]; forward and backward")
ROLL = kernel("roll", "roll over any dimensions")

_gather = native.Function("gather_channels", "ippplll")
_spread = native.Function("spread_channels", "ippplll")


@INDEX.replaces("aten::index_select")
def index_select(self: torch.Tensor, dim: int, index: torch.Tensor) -> Any:
    if not (_serves(self) and is_plain(index) and index.dim() == 1 and index.dtype in {torch.int64, torch.int32}):
        return NotImplemented
    if not -self.dim() <= dim < self.dim() or not index.numel():
        return NotImplemented
    size = self.shape[dim]
    low, high = torch.aminmax(index)
    if low < 0 or high >= size:
        return NotImplemented
    if dim % self.dim() != 1 or not native.is_available() or self.element_size() > 8:
        return from_rows(torch.index_select(rows_of(self), row_dim(self, dim), index))
    shape = (self.shape[0], index.numel(), *self.shape[2:])
    result = empty_channels_last(shape, self)
    order = index.to(torch.int32).contiguous()  # twice as many in a vector as of int64
    rows = self.numel() // size
    _gather(self.element_size(), self, result, order, rows, size, index.numel())
    return result


@INDEX.replaces("aten::index_select", "AutogradCPU")
def index_select_followed(self: torch.Tensor, dim: int, index: torch.Tensor) -> Any:  # noqa: ARG001 the operator's own
    return with_gradient_in_channels_last(self)


@INDEX.replaces("aten::index_select_backward", "CompositeImplicitAutograd")
def index_select_backward(grad: torch.Tensor, self_sizes: Sequence[int], dim: int, index: torch.Tensor) -> Any:
    if not (_serves(grad) and is_plain(index) and len(self_sizes) == grad.dim()):
        return NotImplemented
    place = row_dim(grad, dim)
    channels, taken = self_sizes[1], grad.shape[1]
    same = tuple(self_sizes) == (grad.shape[0], channels, *grad.shape[2:]) and index.numel() == taken
    if place == grad.dim() - 1 and same and _is_final(grad) and _is_within(index, channels):
        result = empty_channels_last(self_sizes, grad)
        order, rows = index.to(torch.int64).contiguous(), grad.numel() // taken
        _spread(native.dtype_code(grad.dtype), grad, result, order, rows, channels, taken)
        return result
    shape = [self_sizes[0], *self_sizes[2:], channels]
    return from_rows(grad.new_zeros(shape).index_add_(place, index, rows_of(grad)))


@INDEX.replaces("aten::index.Tensor")
@INDEX.replaces("aten::index.Tensor", "AutogradCPU")
def index_tensor(self: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> Any:
    given = [(dim, each) for dim, each in enumerate(indices) if each is not None]
    if len(given) != 1 or not _serves(self):
        return NotImplemented
    dim, index = given[0]
    if not (is_plain(index) and index.dim() == 1 and index.dtype == torch.int64 and index.numel()):
        return NotImplemented
    low, high = torch.aminmax(index)
    if low < -self.shape[dim] or high >= self.shape[dim]:
        return NotImplemented
    return torch.index_select(self, dim, index if low >= 0 else torch.where(index < 0, index + self.shape[dim], index))


@ROLL.replaces("aten::roll")
@ROLL.replaces("aten::roll", "CUDA", where=gpu.is_present)
def roll(self: torch.Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Any:
    if not (is_plain(self) and lies_channels_last(self) and self.numel() and dims):
        return NotImplemented
    if any(not -self.dim() <= dim < self.dim() for dim in dims):
        return NotImplemented
    return from_rows(torch.roll(rows_of(self), list(shifts), [row_dim(self, dim) for dim in dims]))


@ROLL.replaces("aten::roll", "AutogradCPU")
def roll_followed(self: torch.Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Any:  # noqa: ARG001
    return with_gradient_in_channels_last(self)


def _is_final(grad: torch.Tensor) -> bool:
    """Whether the compiled loop takes a gradient and nobody asks for the derivative of what it answers."""
    tracked = (torch.is_grad_enabled() and grad.requires_grad) or tracks_forward_gradients()
    return not tracked and loops_serve(grad)


def _is_within(index: torch.Tensor, size: int) -> bool:
    low, high = torch.aminmax(index)
    return bool(low >= 0 and high < size)


def _serves(tensor: torch.Tensor) -> bool:
    return is_plain(tensor) and is_channels_last(tensor) and tensor.numel() > 0
