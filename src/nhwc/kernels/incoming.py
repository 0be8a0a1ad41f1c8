"""Gradients that arrive in another format than an operator's input had, brought there before torch's own formula runs.

For operators whose backward sees nothing but the gradient, and answers in its format.
"""

from __future__ import annotations

from typing import Any

import torch

from nhwc.kernels import relayout
from nhwc.kernels.dispatcher import AfterOriginal, is_plain
from nhwc.kernels.layouts import FORMATS, as_channels_last, is_channels_last


def with_gradient_in_channels_last(input: torch.Tensor) -> Any:  # noqa: A002 torch's name
    """What a replacement at "AutogradCPU" answers with; the original runs, on a channels-last input with a gradient."""
    if not (input.requires_grad and torch.is_grad_enabled() and is_plain(input) and is_channels_last(input)):
        return NotImplemented
    return _FOLLOWED


def with_contiguous_gradient(input: torch.Tensor) -> Any:  # noqa: A002
    """What a replacement of a composite answers with; the original runs, on a contiguous input with a gradient."""
    if not (input.requires_grad and torch.is_grad_enabled() and is_plain(input) and input.is_contiguous()):
        return NotImplemented
    return _KEPT_CONTIGUOUS


def _followed(result: torch.Tensor) -> torch.Tensor:
    if result.grad_fn is not None:
        result.grad_fn.register_prehook(_in_channels_last)
    return result


def _in_channels_last(grads: tuple[torch.Tensor | None, ...]) -> tuple[torch.Tensor] | None:
    grad = grads[0]
    if grad is None or not is_plain(grad) or is_channels_last(grad):
        return None
    if not (grad.requires_grad and torch.is_grad_enabled()):
        return (as_channels_last(grad),)
    if relayout.serves(grad):
        return (relayout.to_format(grad, True),)
    return (as_channels_last(grad.contiguous(memory_format=FORMATS[grad.dim()])),)


def _kept_contiguous(result: torch.Tensor) -> torch.Tensor:
    if result.grad_fn is not None:
        result.grad_fn.register_prehook(lambda grads: tuple(one if one is None else one.contiguous() for one in grads))
    return result


_FOLLOWED = AfterOriginal(_followed)
_KEPT_CONTIGUOUS = AfterOriginal(_kept_contiguous)
