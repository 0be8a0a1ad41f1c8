"""Group norm and instance norm: statistics and result straight on channels-last rows.

torch's instance norm reshapes to one batch norm over N * C channels, which channels last cannot be viewed as: it copies
and answers contiguous. Instance norm is group norm with one group per channel, which keeps autograd torch's own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from nhwc.kernels import gpu, native
from nhwc.kernels.dispatcher import is_plain
from nhwc.kernels.incoming import with_contiguous_gradient
from nhwc.kernels.layouts import as_channels_last, in_huge_pages, is_channels_last, loops_serve
from nhwc.kernels.registry import kernel

GROUP_NORM = kernel(
    "group_norm",
    "group norm, forward and backward",
    native="torch's own kernel runs, at about half the speed",
    native_only=("*",),
)
INSTANCE_NORM = kernel(
    "instance_norm",
    "instance norm, with and without affine parameters and running statistics",
    native="it runs as torch's group norm",
    uses=("group_norm",),
)

_HALF = frozenset({torch.bfloat16, torch.float16})

_forward = native.Function("group_norm_forward", "iipppppplllld")
_backward = native.Function("group_norm_backward", "iippppppppllll")


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
    if not serves(input, weight, bias) or input.shape[:2] != (N, C) or N * C * HxW != input.numel():
        return NotImplemented
    if group <= 0 or C % group:
        return NotImplemented
    return normalize(input, weight, bias, (N, HxW, C, group), eps)


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
    if not (serves(input, weight) and grad_out.dtype == input.dtype and is_plain(grad_out)):
        return NotImplemented
    return normalize_backward(grad_out, input, mean, rstd, weight, (N, HxW, C, group), output_mask)


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
    if not (is_plain(input) and input.dim() in {4, 5} and input.numel() and input.is_floating_point()):
        return NotImplemented
    if not (is_channels_last(input) or gpu.serves(input)):
        # torch's own gradient is wrong for one contiguous sample where a channels-last gradient comes in
        return with_contiguous_gradient(input) if input.shape[0] == 1 else NotImplemented
    if any(each is not None and not fits(each, input) for each in (weight, bias, running_mean, running_var)):
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


def normalize(
    input: torch.Tensor,  # noqa: A002
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    sizes: tuple[int, int, int, int],
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Result, mean and reciprocal deviation of a channels-last ``input`` seen as (samples, rows, channels).

    sizes: samples, rows, channels and groups. mean and deviation are (samples, groups), float64 for float64 and float32
    for any other dtype.
    """
    samples, _rows, _channels, groups = sizes
    result = in_huge_pages(torch.empty_like(input))
    statistics = torch.float64 if input.dtype == torch.float64 else torch.float32
    mean = torch.empty((samples, groups), dtype=statistics, device="cpu")
    rstd = torch.empty_like(mean)
    codes = native.dtype_code(input.dtype), _affine_code(input, weight, bias)
    _forward(*codes, input, weight, bias, result, mean, rstd, *sizes, eps)
    return result, mean, rstd


def normalize_backward(
    grad: torch.Tensor,
    input: torch.Tensor,  # noqa: A002
    mean: torch.Tensor,
    rstd: torch.Tensor,
    weight: torch.Tensor | None,
    sizes: tuple[int, int, int, int],
    wanted: Sequence[bool],
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    """Gradients of ``normalize`` for input, weight and bias, None for those that are not ``wanted``."""
    channels = sizes[2]
    statistics = torch.float64 if input.dtype == torch.float64 else torch.float32
    parameter = input.dtype if weight is None else weight.dtype
    grad_input = in_huge_pages(torch.empty_like(input)) if wanted[0] else None
    grad_weight = torch.empty((channels,), dtype=parameter, device="cpu") if wanted[1] else None
    grad_bias = torch.empty((channels,), dtype=parameter, device="cpu") if wanted[2] else None
    codes = native.dtype_code(input.dtype), native.dtype_code(parameter)
    saved = (each if each.dtype is statistics else each.to(statistics) for each in (mean, rstd))
    _backward(*codes, as_channels_last(grad), input, weight, *saved, grad_input, grad_weight, grad_bias, *sizes)
    return grad_input, grad_weight, grad_bias


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


def serves(input: torch.Tensor, *per_channel: torch.Tensor | None) -> bool:  # noqa: A002
    """Whether the loops take a channels-last input with these tensors of one value per channel."""
    return loops_serve(input) and are_per_channel(input, *per_channel)


def are_per_channel(input: torch.Tensor, *tensors: torch.Tensor | None) -> bool:  # noqa: A002
    """Whether ``tensors``, where given, hold one value per channel beside ``input``, all of one dtype: its own, or
    float32 for a half-precision one.
    """
    channels, device, dtype = input.shape[1], input.device, None
    for each in tensors:
        if each is None:
            continue
        if dtype is not None and each.dtype is not dtype:
            return False
        dtype = each.dtype
        if not (each.device == device and each.numel() == channels and each.dim() == 1 and each.is_contiguous()):
            return False
    return dtype is None or dtype is input.dtype or (dtype is torch.float32 and input.dtype in _HALF)


def fits(parameter: torch.Tensor, input: torch.Tensor) -> bool:  # noqa: A002
    """Whether a plain per-channel tensor is what torch takes with such an input."""
    return is_plain(parameter) and are_per_channel(input, parameter)


def _affine_code(input: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None) -> int | None:  # noqa: A002
    given = weight if weight is not None else bias
    return native.dtype_code(input.dtype if given is None else given.dtype)
