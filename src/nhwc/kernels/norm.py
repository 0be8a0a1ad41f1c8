"""Group norm and instance norm: statistics and result straight on channels-last rows.

torch's instance norm reshapes to one batch norm over N * C channels, which channels last cannot be viewed as: it copies
and answers contiguous. Instance norm is group norm with one group per channel, which keeps autograd torch's own.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from nhwc.kernels import native
from nhwc.kernels.dispatcher import is_plain
from nhwc.kernels.layouts import as_channels_last, empty_channels_last, is_channels_last
from nhwc.kernels.registry import kernel

GROUP_NORM = kernel(
    "group_norm", "group norm, forward and backward", native="torch's own kernel runs, at about half the speed"
)
INSTANCE_NORM = kernel(
    "instance_norm",
    "instance norm, with and without affine parameters and running statistics",
    native="it runs as torch's group norm",
    uses=("group_norm",),
)

_forward = native.Function("group_norm_forward", "iipppppp" + "lllld")
_backward = native.Function("group_norm_backward", "iipppppppp" + "llll")


@GROUP_NORM.replaces("aten::native_group_norm")
def native_group_norm(
    input: torch.Tensor,  # noqa: A002 torch's name
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    N: int,  # noqa: N803 torch's names
    C: int,  # noqa: N803
    HxW: int,  # noqa: N803
    group: int,
    eps: float,
) -> Any:
    if not (_serves(input, weight, bias) and input.shape[:2] == (N, C) and N * C * HxW == input.numel()):
        return NotImplemented
    if group <= 0 or C % group or any(each is not None and each.shape != (C,) for each in (weight, bias)):
        return NotImplemented
    result = empty_channels_last(input.shape, input)
    statistics = torch.float64 if input.dtype == torch.float64 else torch.float32
    mean = torch.empty((N, group), dtype=statistics)
    rstd = torch.empty((N, group), dtype=statistics)
    codes = native.dtype_code(input.dtype), _affine_code(input, weight, bias)
    _forward(*codes, input, weight, bias, result, mean, rstd, N, HxW, C, group, eps)
    return result, mean, rstd


@GROUP_NORM.replaces("aten::native_group_norm_backward")
def native_group_norm_backward(
    grad_out: torch.Tensor,
    input: torch.Tensor,  # noqa: A002
    mean: torch.Tensor,
    rstd: torch.Tensor,
    weight: torch.Tensor | None,
    N: int,  # noqa: N803
    C: int,  # noqa: N803
    HxW: int,  # noqa: N803
    group: int,
    output_mask: list[bool],
) -> Any:
    if not (_serves(input, weight) and grad_out.dtype == input.dtype and is_plain(grad_out)):
        return NotImplemented
    grad = as_channels_last(grad_out)
    statistics = torch.float64 if input.dtype == torch.float64 else torch.float32
    parameter = input.dtype if weight is None else weight.dtype
    wants_input, wants_weight, wants_bias = output_mask
    grad_input = empty_channels_last(input.shape, input) if wants_input else None
    grad_weight = torch.empty((C,), dtype=parameter) if wants_weight else None
    grad_bias = torch.empty((C,), dtype=parameter) if wants_bias else None
    codes = native.dtype_code(input.dtype), native.dtype_code(parameter)
    saved = mean.to(statistics), rstd.to(statistics)
    _backward(*codes, grad, input, weight, *saved, grad_input, grad_weight, grad_bias, N, HxW, C, group)
    return grad_input, grad_weight, grad_bias


@INSTANCE_NORM.replaces("aten::instance_norm", "CompositeImplicitAutograd")
def instance_norm(
    input: torch.Tensor,  # noqa: A002
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Any:
    if not (is_plain(input) and is_channels_last(input) and input.numel() and input.is_floating_point()):
        return NotImplemented
    if any(each is not None and not _fits(each, input) for each in (weight, bias, running_mean, running_var)):
        return NotImplemented
    if (weight is None) != (bias is None) or (running_mean is None) != (running_var is None):
        return NotImplemented
    if not use_input_stats:
        if running_mean is None:
            return NotImplemented
        return torch.batch_norm(input, weight, bias, running_mean, running_var, False, momentum, eps, cudnn_enabled)
    samples, channels = input.shape[:2]
    rows = math.prod(input.shape[2:])
    result, mean, rstd = torch.native_group_norm(input, weight, bias, samples, channels, rows, channels, eps)
    if running_mean is not None and running_var is not None:
        _update(running_mean, running_var, mean.detach(), rstd.detach(), momentum, eps, rows)
    return result


def _update(
    running_mean: torch.Tensor,
    running_var: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    momentum: float,
    eps: float,
    rows: int,
) -> None:
    """Moving averages of the samples' mean and unbiased variance (each (samples, channels)), as torch keeps them."""
    variance = (rstd.double().pow(-2) - eps).mul_(rows / (rows - 1) if rows > 1 else math.nan)
    for running, fresh in ((running_mean, mean.double()), (running_var, variance)):
        running.mul_(1.0 - momentum).add_(fresh.mean(0).to(running.dtype), alpha=momentum)


def _serves(input: torch.Tensor, *parameters: torch.Tensor | None) -> bool:  # noqa: A002
    return (
        native.is_available()
        and is_plain(input)
        and is_channels_last(input)
        and input.numel() > 0
        and native.dtype_code(input.dtype) is not None
        and all(each is None or _fits(each, input) for each in parameters)
        and len({each.dtype for each in parameters if each is not None}) <= 1
    )


def _fits(parameter: torch.Tensor, input: torch.Tensor) -> bool:  # noqa: A002
    """Whether a per-channel tensor is what torch takes with such an input: of its dtype, or float32 for half."""
    mixed = input.dtype in {torch.bfloat16, torch.float16} and parameter.dtype == torch.float32
    return (
        is_plain(parameter)
        and parameter.device == input.device
        and parameter.dim() == 1
        and parameter.shape[0] == input.shape[1]
        and parameter.is_contiguous()
        and (parameter.dtype == input.dtype or mixed)
    )


def _affine_code(input: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None) -> int | None:  # noqa: A002
    given = weight if weight is not None else bias
    return native.dtype_code(input.dtype if given is None else given.dtype)
