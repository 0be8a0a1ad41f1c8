"""Copies between the contiguous format and channels last: blocked transpositions, several times as fast as torch's.

It stands in for ``clone`` and ``to``, so every conversion takes it: ``to(memory_format=...)``, ``contiguous()``,
``flatten``, and what an operator converts inside its kernel. ``copy_`` and ``_to_copy`` stay torch's: steps make them
far more often, for numbers too, and nearly always within one format.
"""

from __future__ import annotations

from typing import Any

import torch

from nhwc.kernels.dispatcher import is_plain, wrapped
from nhwc.kernels.layouts import (
    empty_channels_last,
    in_huge_pages,
    is_channels_last,
    strides_are_contiguous,
    transpose,
)
from nhwc.kernels.registry import kernel

CONVERSION = kernel(
    "conversion",
    "copies from contiguous to channels last and back",
    native="torch's own copy runs, two to three times slower",
)

#: Below this many elements the call itself costs more than the copy.
_WORTHWHILE = 4096
_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
_FORMATS = {torch.contiguous_format, *_LAST.values()}


@CONVERSION.replaces("aten::clone")
def clone(self: Any, *, memory_format: torch.memory_format | None = None) -> Any:
    if not isinstance(self, torch.Tensor):
        return wrapped(self).clone()
    return _converted(self, memory_format)


@CONVERSION.replaces("aten::to.dtype_layout", "CompositeImplicitAutograd")
def to(
    self: Any,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    non_blocking: bool = False,  # noqa: ARG001 CPU to CPU
    copy: bool = False,
    memory_format: torch.memory_format | None = None,
) -> Any:
    if memory_format not in _FORMATS or pin_memory or not isinstance(self, torch.Tensor) or not is_plain(self):
        return NotImplemented
    if dtype not in {None, self.dtype} or layout not in {None, self.layout} or device not in {None, self.device}:
        return NotImplemented
    if not copy and self.is_contiguous(memory_format=memory_format):
        return NotImplemented
    return self.clone(memory_format=memory_format)


def _converted(tensor: torch.Tensor, wanted: torch.memory_format | None) -> Any:
    """``tensor`` in the format that is wanted; NotImplemented where it is not in the other one."""
    last = _LAST.get(tensor.dim())
    if last is None or wanted is None or tensor.numel() < _WORTHWHILE or not is_plain(tensor):
        return NotImplemented
    if wanted == last and strides_are_contiguous(tensor):
        result = empty_channels_last(tensor.shape, tensor)
    elif wanted == torch.contiguous_format and is_channels_last(tensor):
        result = in_huge_pages(torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device))
    else:
        return NotImplemented
    return result if transpose(tensor, result) else NotImplemented
