"""Backward of activations where the incoming gradient is not channels last: expanded (a mean's, a sum's) or contiguous.

torch lays the result out after the gradient; here it is laid out after the activation's input, in the same single pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from nhwc.kernels import gpu, native
from nhwc.kernels.dispatcher import is_plain
from nhwc.kernels.layouts import (
    as_channels_last,
    empty_channels_last,
    from_rows,
    is_channels_last,
    lies_channels_last,
    pixel_step,
    rows_of,
)
from nhwc.kernels.registry import kernel

ACTIVATION = kernel(
    "activation_backward",
    "gradients of activations follow the input's format, not the gradient's",
    native="torch's own loops run, slower where the gradient is expanded over space",
)

#: Those with a loop of ours for a gradient that is the same for every pixel → its code there.
_NATIVE = {
    "threshold_backward": 0,
    "hardtanh_backward": 1,
    "leaky_relu_backward": 2,
    "hardswish_backward": 3,
    "hardsigmoid_backward": 4,
    "silu_backward": 5,
    "sigmoid_backward": 6,
    "tanh_backward": 7,
}
_same_for_all_pixels = native.Function("activation_backward", "iipllppllldd")

#: Each takes the gradient first and the input (or the result) second, and writes into ``grad_input``.
_INTO_GRAD_INPUT = (
    "elu_backward",
    "gelu_backward",
    "hardshrink_backward",
    "hardsigmoid_backward",
    "hardtanh_backward",
    "leaky_relu_backward",
    "log_sigmoid_backward",
    "logit_backward",
    "sigmoid_backward",
    "silu_backward",
    "softplus_backward",
    "softshrink_backward",
    "tanh_backward",
    "threshold_backward",
)
#: The same, without a variant that writes into a given tensor: the gradient is laid out first.
_WITHOUT = ("hardswish_backward", "mish_backward")
#: (gradient, self, other arguments): elu's input comes fifth.
_INPUT_AT = {"elu_backward": 5}


def _register(name: str) -> None:
    packet = getattr(torch.ops.aten, name)
    into: Callable[..., torch.Tensor] | None = packet.grad_input if name in _INTO_GRAD_INPUT else None
    place = _INPUT_AT.get(name, 1)

    @ACTIVATION.replaces(f"aten::{name}")
    @ACTIVATION.replaces(f"aten::{name}", "CUDA", where=gpu.is_present)
    def backward(grad: torch.Tensor, *operands: Any, **options: Any) -> Any:
        of = operands[place - 1] if len(operands) >= place else None
        if not isinstance(of, torch.Tensor) or grad.stride() == of.stride():
            return NotImplemented  # nearly every call: one format, which torch keeps
        if not (is_plain(of) and is_plain(grad) and lies_channels_last(of)):
            return NotImplemented
        if grad.shape != of.shape or grad.dtype != of.dtype or not of.numel() or pixel_step(grad) is not None:
            return NotImplemented  # some channels of a wider gradient lie in the input's order too, which torch keeps
        if of.is_cpu and name in _NATIVE and native.is_available() and _is_expanded_over_space(grad):
            low, high = ([float(each) for each in operands[1:3]] + [0.0, 0.0])[:2]
            return _from_expanded(_NATIVE[name], grad, of, low, high)
        if into is None:
            return packet.default(as_channels_last(grad), *operands, **options)
        return into(grad, *operands, **options, grad_input=empty_channels_last(of.shape, of))


def _is_expanded_over_space(grad: torch.Tensor) -> bool:
    return native.dtype_code(grad.dtype) is not None and not any(
        stride for size, stride in zip(grad.shape[2:], grad.stride()[2:], strict=True) if size > 1
    )


def _from_expanded(kind: int, grad: torch.Tensor, of: torch.Tensor, low: float, high: float) -> torch.Tensor:
    result = empty_channels_last(of.shape, of)
    samples, channels, *sizes = of.shape
    code, steps = native.dtype_code(of.dtype), grad.stride()[:2]
    _same_for_all_pixels(code, kind, grad, *steps, of, result, samples, math.prod(sizes), channels, low, high)
    return result


@ACTIVATION.replaces("aten::log_sigmoid_forward")
def log_sigmoid_forward(self: torch.Tensor) -> Any:
    # its kernel answers contiguous, result and buffer alike
    if not (is_plain(self) and is_channels_last(self) and self.numel()):
        return NotImplemented
    output, buffer = torch.ops.aten.log_sigmoid_forward.default(rows_of(self))
    return from_rows(output), from_rows(buffer) if buffer.dim() == self.dim() else buffer


for _name in (*_INTO_GRAD_INPUT, *_WITHOUT):
    _register(_name)
