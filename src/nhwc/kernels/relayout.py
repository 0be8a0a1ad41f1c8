"""``nhwc::to_format``: the conversion between the formats as an operator of its own, with a gradient.

An operator, and not a function that fills a tensor, so that recorders, profilers and torch.compile see it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.library import Library, register_autograd, register_fake

from nhwc.kernels import native
from nhwc.kernels.dispatcher import is_plain, tracks_forward_gradients
from nhwc.kernels.layouts import (
    empty_channels_last,
    in_huge_pages,
    is_channels_last,
    strides_are_contiguous,
    transpose,
)

_library = Library("nhwc", "FRAGMENT")  # type: ignore[no-untyped-call]
_library.define("to_format(Tensor self, bool channels_last) -> Tensor")  # type: ignore[no-untyped-call]


def serves(tensor: torch.Tensor) -> bool:
    """Whether the operator takes ``tensor``: a plain one on the CPU, contiguous or channels last, and not empty."""
    return (
        not torch.compiler.is_compiling()  # a compiler makes its own copy of torch's, which it can fuse
        and tensor.dim() in {4, 5}
        and is_plain(tensor)
        and tensor.device.type == "cpu"
        and tensor.numel() > 0
        and tensor.element_size() <= 8
        and not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
        and not tracks_forward_gradients()
        and native.is_available()
        and (strides_are_contiguous(tensor) or is_channels_last(tensor))
    )


def to_format(tensor: torch.Tensor, channels_last: bool) -> torch.Tensor:
    """A copy of a ``tensor`` that ``serves`` takes, in the other format; its gradient passes through as it is."""
    converted: torch.Tensor = torch.ops.nhwc.to_format(tensor, channels_last)
    return converted


def _empty(self: torch.Tensor, channels_last: bool) -> torch.Tensor:
    if channels_last:
        return empty_channels_last(self.shape, self)
    return in_huge_pages(torch.empty(self.shape, dtype=self.dtype, device=self.device))


def _on_cpu(self: torch.Tensor, channels_last: bool) -> torch.Tensor:
    result = _empty(self, channels_last)
    if not transpose(self, result):
        result.copy_(self)
    return result


def _backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:  # noqa: ARG001 torch's signature
    return grad, None


_library.impl("to_format", _on_cpu, "CPU")  # type: ignore[no-untyped-call]
register_fake("nhwc::to_format", _empty, lib=_library)
register_autograd("nhwc::to_format", _backward, lib=_library)
