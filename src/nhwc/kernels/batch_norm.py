"""Batch norm in training: group norm's loops over one sample, whose rows are the pixels of all images.

torch keeps the format here; its channels-last backward takes two to three times the contiguous one's time.
"""

from __future__ import annotations

from typing import Any

import torch

from nhwc.kernels import native
from nhwc.kernels.dispatcher import is_plain
from nhwc.kernels.layouts import in_huge_pages
from nhwc.kernels.norm import normalize_backward, serves
from nhwc.kernels.registry import kernel

BATCH_NORM = kernel(
    "batch_norm",
    "batch norm in training, forward and backward",
    native="torch's own kernels run, two to three times slower",
    native_only=("*",),
)

#: Below this many elements torch's loops run where they keep the format: coming here costs more than ours save.
_WORTHWHILE = 65536
_DTYPES = (torch.float32, torch.float64)

#: (dtype, x, weight, bias, running mean, running variance, result, mean, deviation, rows, channels, momentum, epsilon).
_forward = native.Function("batch_norm_forward", "ipppppppplldd")


@BATCH_NORM.replaces("aten::native_batch_norm", keeps_strides=True)
def native_batch_norm(
    input: torch.Tensor,  # noqa: A002 torch's name
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    size = input.numel()
    if not training or size < _WORTHWHILE or input.dtype not in _DTYPES:
        return NotImplemented
    if not serves(input, weight, bias, running_mean, running_var):
        return NotImplemented
    channels = input.shape[1]
    rows = size // channels
    if rows < 2 or (running_mean is None) != (running_var is None):
        return NotImplemented
    result = in_huge_pages(torch.empty_like(input))
    mean = torch.empty(channels, dtype=input.dtype, device=input.device)
    rstd = torch.empty_like(mean)
    code = native.dtype_code(input.dtype)
    _forward(code, input, weight, bias, running_mean, running_var, result, mean, rstd, rows, channels, momentum, eps)
    return result, mean, rstd


@BATCH_NORM.replaces("aten::native_batch_norm_backward", keeps_strides=True)
def native_batch_norm_backward(
    grad_out: torch.Tensor,
    input: torch.Tensor,  # noqa: A002
    weight: torch.Tensor | None,
    running_mean: torch.Tensor | None,  # noqa: ARG001 the operator's own
    running_var: torch.Tensor | None,  # noqa: ARG001
    save_mean: torch.Tensor | None,
    save_invstd: torch.Tensor | None,
    train: bool,
    eps: float,  # noqa: ARG001
    output_mask: list[bool],
) -> Any:
    size = input.numel()
    if not train or save_mean is None or save_invstd is None or input.dtype not in _DTYPES:
        return NotImplemented
    if size < _WORTHWHILE and grad_out.stride() == input.stride():
        return NotImplemented
    if not serves(input, weight, save_mean, save_invstd):
        return NotImplemented
    if grad_out.dtype is not input.dtype or grad_out.shape != input.shape or not is_plain(grad_out):
        return NotImplemented
    channels = input.shape[1]
    sizes = (1, size // channels, channels, channels)
    return normalize_backward(grad_out, input, save_mean, save_invstd, weight, sizes, output_mask)
