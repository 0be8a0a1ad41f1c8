"""Copies between the contiguous format and channels last: blocked transpositions, several times as fast as torch's.

It stands in for ``clone``, in which ``contiguous``, ``flatten`` and what an operator converts inside its kernel end.
``copy_`` and ``to`` stay torch's: steps make them far more often, for numbers and the gradients of weights too, nearly
always within one format, and every call that comes here costs.
"""

from __future__ import annotations

from typing import Any

import torch

from nhwc.kernels.dispatcher import is_plain
from nhwc.kernels.layouts import (
    FORMATS,
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
    native_only=("*",),
)

#: Below this many elements the call itself costs more than the copy.
_WORTHWHILE = 4096


@CONVERSION.replaces("aten::clone")
def clone(self: Any, *, memory_format: torch.memory_format | None = None) -> Any:
    if not isinstance(self, torch.Tensor):
        return NotImplemented
    last = FORMATS.get(self.dim())
    if last is None or memory_format is None or self.numel() < _WORTHWHILE or not is_plain(self):
        return NotImplemented
    if memory_format == last and strides_are_contiguous(self):
        result = empty_channels_last(self.shape, self)
    elif memory_format == torch.contiguous_format and is_channels_last(self):
        result = in_huge_pages(torch.empty(self.shape, dtype=self.dtype, device=self.device))
    else:
        return NotImplemented
    return result if transpose(self, result) else NotImplemented
