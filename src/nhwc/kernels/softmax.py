"""Softmax and log-softmax: torch's own kernels, on the (N, ..., C) view, where channels are contiguous."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from nhwc.kernels.dispatcher import is_plain
from nhwc.kernels.layouts import as_channels_last, from_rows, is_channels_last, row_dim, rows_of
from nhwc.kernels.registry import kernel

SOFTMAX = kernel("softmax", "softmax and log-softmax over any dimension, forward and backward")


def _register(name: str) -> None:
    """``name``: "_softmax" or "_log_softmax", with the backward that belongs to it."""
    run: Callable[..., Any] = getattr(torch, name)
    run_backward: Callable[..., Any] = getattr(torch, f"{name}_backward_data")

    @SOFTMAX.replaces(f"aten::{name}")
    def forward(self: torch.Tensor, dim: int, half_to_float: bool) -> Any:
        if not _serves(self, dim):
            return NotImplemented
        return from_rows(run(rows_of(self), row_dim(self, dim), half_to_float))

    @SOFTMAX.replaces(f"aten::{name}_backward_data")
    def backward(grad_output: torch.Tensor, output: torch.Tensor, dim: int, input_dtype: torch.dtype) -> Any:
        if not (_serves(output, dim) and is_plain(grad_output) and grad_output.shape == output.shape):
            return NotImplemented
        grad = rows_of(as_channels_last(grad_output))
        return from_rows(run_backward(grad, rows_of(output), row_dim(output, dim), input_dtype))


def _serves(tensor: torch.Tensor, dim: int) -> bool:
    return is_plain(tensor) and is_channels_last(tensor) and tensor.numel() > 0 and -tensor.dim() <= dim < tensor.dim()


for _name in ("_softmax", "_log_softmax"):
    _register(_name)
