"""Batch norm in training: group norm's loops over one sample, whose rows are the pixels of all images.

torch keeps the format here; its channels-last backward takes two to three times the contiguous one's time.
"""

from __future__ import annotations

from typing import Any

import torch

from nhwc.kernels import native
from nhwc.kernels.dispatcher import is_plain
from nhwc.kernels.norm import normalize, normalize_backward, serves
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

_update_running = native.Function("update_running", "ippppddll")


@BATCH_NORM.replaces("aten::native_batch_norm")
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
    if not training or input.numel() < _WORTHWHILE or input.dtype not in _DTYPES:
        return NotImplemented
    if not serves(input, weight, bias, running_mean, running_var):
        return NotImplemented
    channels = input.shape[1]
    rows = input.numel() // channels
    if rows < 2 or any(each is not None and each.dtype != input.dtype for each in (running_mean, running_var)):
        return NotImplemented
    result, mean, rstd = normalize(input, weight, bias, (1, rows, channels, channels), eps)
    mean, rstd = mean.view(channels), rstd.view(channels)
    code = native.dtype_code(input.dtype)
    _update_running(code, mean, rstd, running_mean, running_var, momentum, eps, rows, channels)
    return result, mean, rstd


@BATCH_NORM.replaces("aten::native_batch_norm_backward")
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
    if not train or save_mean is None or save_invstd is None:
        return NotImplemented
    if input.numel() < _WORTHWHILE and grad_out.stride() == input.stride():
        return NotImplemented
    if not (input.dtype in _DTYPES and grad_out.dtype == input.dtype and is_plain(grad_out) and serves(input, weight)):
        return NotImplemented
    channels = input.shape[1]
    sizes = (1, input.numel() // channels, channels, channels)
    return normalize_backward(grad_out, input, save_mean, save_invstd, weight, sizes, output_mask)
