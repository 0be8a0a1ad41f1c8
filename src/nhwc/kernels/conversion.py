"""Copies between the contiguous format and channels last: blocked transpositions, several times as fast as torch's.

It stands in for ``copy_``, so every conversion takes it: ``to(memory_format=...)``, ``contiguous()``, ``flatten``, and
what an operator converts inside its kernel.
"""

from __future__ import annotations

from typing import Any

import torch

from nhwc.kernels.layouts import transpose
from nhwc.kernels.registry import kernel

CONVERSION = kernel(
    "conversion",
    "copies from contiguous to channels last and back",
    native="torch's own copy runs, two to three times slower",
)

#: Below this many elements the call itself costs more than the copy.
_WORTHWHILE = 4096


@CONVERSION.replaces("aten::copy_")
def copy_(self: torch.Tensor, src: Any, non_blocking: bool = False) -> Any:  # noqa: ARG001 CPU to CPU
    if not isinstance(src, torch.Tensor):  # torch wrapped a Python number; it comes unwrapped
        exact = {float: torch.float64, complex: torch.complex128}.get(type(src))
        return self.copy_(torch.tensor(src, dtype=exact))
    rank = self.dim()
    if rank not in {4, 5} or self.numel() < _WORTHWHILE or self.dtype != src.dtype or self.shape != src.shape:
        return NotImplemented
    return self if transpose(src, self) else NotImplemented
