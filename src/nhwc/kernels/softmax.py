"""Softmax and log-softmax: over channels by our own loops, over space by torch's on the (N, ..., C) view."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from nhwc.kernels import gpu, native
from nhwc.kernels.dispatcher import is_plain
from nhwc.kernels.layouts import as_channels_last, empty_channels_last, from_rows, lies_channels_last, row_dim, rows_of
from nhwc.kernels.registry import kernel

SOFTMAX = kernel(
    "softmax",
    "softmax and log-softmax over any dimension, forward and backward",
    native="torch's kernels run on the channels-last view, slower for few channels",
)

_forward = native.Function("softmax_forward", "ippill")
_backward = native.Function("softmax_backward", "ipppill")


def _register(name: str) -> None:
    """``name``: "_softmax" or "_log_softmax", with the backward that belongs to it."""
    logarithm = int(name == "_log_softmax")
    run: Callable[..., Any] = getattr(torch, name)
    run_backward: Callable[..., Any] = getattr(torch, f"{name}_backward_data")

    @SOFTMAX.replaces(f"aten::{name}")
    @SOFTMAX.replaces(f"aten::{name}", "CUDA", where=gpu.is_present)
    def forward(self: torch.Tensor, dim: int, half_to_float: bool) -> Any:
        if not _serves(self, dim):
            return NotImplemented
        if _over_channels(self, dim) and not half_to_float:
            result, channels = empty_channels_last(self.shape, self), self.shape[1]
            _forward(native.dtype_code(self.dtype), self, result, logarithm, self.numel() // channels, channels)
            return result
        return from_rows(run(rows_of(self), row_dim(self, dim), half_to_float))

    @SOFTMAX.replaces(f"aten::{name}_backward_data")
    @SOFTMAX.replaces(f"aten::{name}_backward_data", "CUDA", where=gpu.is_present)
    def backward(grad_output: torch.Tensor, output: torch.Tensor, dim: int, input_dtype: torch.dtype) -> Any:
        if not (_serves(output, dim) and is_plain(grad_output) and grad_output.shape == output.shape):
            return NotImplemented
        grad = as_channels_last(grad_output)
        if _over_channels(output, dim) and input_dtype == output.dtype == grad.dtype:
            result, channels = empty_channels_last(output.shape, output), output.shape[1]
            code, rows = native.dtype_code(output.dtype), output.numel() // channels
            _backward(code, grad, output, result, logarithm, rows, channels)
            return result
        return from_rows(run_backward(rows_of(grad), rows_of(output), row_dim(output, dim), input_dtype))


def _serves(tensor: torch.Tensor, dim: int) -> bool:
    return (
        is_plain(tensor) and lies_channels_last(tensor) and tensor.numel() > 0 and -tensor.dim() <= dim < tensor.dim()
    )


def _over_channels(tensor: torch.Tensor, dim: int) -> bool:
    return (
        tensor.is_cpu
        and dim % tensor.dim() == 1
        and native.is_available()
        and native.dtype_code(tensor.dtype) is not None
    )


for _name in ("_softmax", "_log_softmax"):
    _register(_name)
