"""Pointwise operators of a channels-last and a contiguous tensor: the result is channels last, whichever comes first.

torch lays the result out after the first operand that is dense and of the result's shape, so ``position + features`` is
contiguous where ``features + position`` is channels last, and the next layer pays for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from nhwc.kernels.dispatcher import OnOperands, is_plain, wrapped
from nhwc.kernels.layouts import as_channels_last, is_channels_last, strides_are_contiguous
from nhwc.kernels.registry import kernel

MIXED = kernel(
    "mixed_pointwise",
    "arithmetic of a contiguous and a channels-last tensor",
    native="torch's own copy brings the contiguous operand to channels last, two to three times slower",
    uses=("conversion",),
)

_RANKS = (4, 5)
_OPERATORS = ("add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "maximum", "minimum")


def _register(name: str) -> None:
    packet = name.partition(".")[0]
    into: Callable[..., torch.Tensor] = getattr(torch.ops.aten, packet).out

    @MIXED.replaces(f"aten::{name}")
    def pointwise(self: Any, other: Any, **options: Any) -> Any:
        if not (isinstance(self, torch.Tensor) and isinstance(other, torch.Tensor)):
            return _with_number(into, self, other, **options)
        rank = self.dim()
        if rank != other.dim() or rank not in _RANKS or self.stride() == other.stride() or not _wins(self, other):
            return NotImplemented
        return OnOperands((as_channels_last(self), as_channels_last(other)))


def _with_number(into: Callable[..., torch.Tensor], self: Any, other: Any, **options: Any) -> Any:
    """An operand that torch wrapped a Python number in comes unwrapped, and reaches the original in a tensor again.

    That promotes as the number does where the other has dimensions and is of floating point. Else the variant that
    writes into a given tensor takes the number itself: same type promotion, same layout.
    """
    tensor = self if isinstance(self, torch.Tensor) else other
    if not isinstance(tensor, torch.Tensor):
        self = tensor = wrapped(self)
    number = other if tensor is self else self
    if tensor.dim() and tensor.is_floating_point() and isinstance(number, int | float):
        return NotImplemented
    dtype = torch.result_type(self, other)
    if into is torch.ops.aten.div.out and not (dtype.is_floating_point or dtype.is_complex):
        dtype = torch.get_default_dtype()
    return into(self, other, **options, out=torch.empty_like(tensor, dtype=dtype))


def _wins(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether one operand is channels last and of the result's shape, and the other contiguous, with pixels of its own.

    The contiguous one is the smaller or of the same size, and is brought to channels last before: the cheapest place.
    """
    if not (is_plain(first) and is_plain(second)):
        return False
    return _leads(first, second) or _leads(second, first)


def _leads(leading: torch.Tensor, other: torch.Tensor) -> bool:
    if not (_has_an_order(leading) and _has_an_order(other) and strides_are_contiguous(other)):
        return False
    broadcasts = all(own in {1, size} for own, size in zip(other.shape, leading.shape, strict=True))
    return broadcasts and is_channels_last(leading)


def _has_an_order(tensor: torch.Tensor) -> bool:
    """Whether the two formats differ for this shape."""
    return tensor.shape[1] > 1 and tensor.shape[2:].numel() > 1


for _name in _OPERATORS:
    _register(_name)
