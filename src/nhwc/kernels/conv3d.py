"""3-D convolution where torch picks a backend that answers in contiguous: one small volume, float64, transposed ones.

A 1x1x1 convolution is a matrix product on the (N, D, H, W, C) view. In float32 any other runs in oneDNN, which torch
leaves aside for one small volume and which takes channels last. What remains keeps torch's backend, and its result is
brought back to channels last in one pass.

Private interface, read from torch 2.11 to 2.14: ``torch._C._select_conv_backend`` and its names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from nhwc.kernels.dispatcher import AfterOriginal, is_plain
from nhwc.kernels.layouts import as_channels_last, from_rows, is_channels_last, rows_of
from nhwc.kernels.registry import kernel

CONV3D = kernel(
    "conv3d",
    "3-D convolutions, transposed ones too, where torch picks a backend that answers in contiguous",
    native="results of its last resort come back to channels last by torch's own, slower copy",
    uses=("conversion",),
    ranks=(5,),
)

_LOSING = {"Slow3d", "SlowDilated3d", "SlowTranspose3d"}


@CONV3D.replaces("aten::convolution")
def convolution(
    input: torch.Tensor,  # noqa: A002 torch's name
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    if not _serves(input, weight) or min(dilation) < 1:
        return NotImplemented
    arguments = (stride, padding, dilation, transposed, output_padding, groups)
    if _backend(input, weight, bias, *arguments) not in _LOSING:
        return NotImplemented
    if _is_product(weight, stride, padding, transposed, groups):
        return from_rows(torch.nn.functional.linear(rows_of(input), weight.flatten(1), bias))
    if not transposed and input.dtype == torch.float32 and _onednn_takes(weight):
        result = torch.ops.aten.mkldnn_convolution(input, weight, bias, padding, stride, dilation, groups)
        return as_channels_last(result)
    return AfterOriginal(as_channels_last)


@CONV3D.replaces("aten::convolution_backward")
def convolution_backward(
    grad_output: torch.Tensor,
    input: torch.Tensor,  # noqa: A002
    weight: torch.Tensor,
    bias_sizes: Sequence[int] | None,  # noqa: ARG001 the operator's own
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> Any:
    if not (_serves(input, weight) and is_plain(grad_output) and grad_output.dtype == input.dtype):
        return NotImplemented
    arguments = (stride, padding, dilation, transposed, output_padding, groups)
    if _backend(input, weight, None, *arguments) not in _LOSING:
        return NotImplemented
    if _is_product(weight, stride, padding, transposed, groups) and grad_output.numel():
        return _product_backward(grad_output, input, weight, output_mask)
    return AfterOriginal(lambda found: tuple(map(_relaid, found)))


def _product_backward(
    grad_output: torch.Tensor,
    input: torch.Tensor,  # noqa: A002
    weight: torch.Tensor,
    wanted: Sequence[bool],
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    grad, matrix = rows_of(as_channels_last(grad_output)), weight.flatten(1)
    flat = grad.reshape(-1, grad.shape[-1])
    grad_weight = flat.t() @ rows_of(input).reshape(-1, input.shape[1]) if wanted[1] else None
    return (
        from_rows(grad @ matrix) if wanted[0] else None,
        None if grad_weight is None else as_channels_last(grad_weight.view(weight.shape)),
        flat.sum(0) if wanted[2] else None,
    )


def _relaid(gradient: torch.Tensor | None) -> torch.Tensor | None:
    return as_channels_last(gradient) if gradient is not None and gradient.dim() == 5 else gradient


def _serves(input: torch.Tensor, weight: torch.Tensor) -> bool:  # noqa: A002
    return (
        input.dim() == 5
        and weight.dim() == 5
        and is_plain(input)
        and is_plain(weight)
        and input.numel() > 0
        and weight.dtype == input.dtype
        and is_channels_last(input)
    )


def _backend(
    input: torch.Tensor,  # noqa: A002
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    *arguments: Any,
) -> str:
    """The backend that torch would run, by name; empty where torch would refuse the call or cannot say."""
    try:
        chosen = torch._C._select_conv_backend(input, weight, bias, *arguments)
    except (RuntimeError, AttributeError, TypeError):
        return ""
    names = torch._C._ConvBackend.__members__  # type: ignore[attr-defined]
    return next((name for name, value in names.items() if value == chosen), "")


def _is_product(
    weight: torch.Tensor, stride: Sequence[int], padding: Sequence[int], transposed: bool, groups: int
) -> bool:
    """Whether the window is one element, which has no dilation, and moves by one: a matrix product."""
    single = tuple(weight.shape[2:]) == (1, 1, 1) and set(stride) == {1} and set(padding) == {0}
    return single and groups == 1 and not transposed


def _onednn_takes(weight: torch.Tensor) -> bool:
    return bool(torch._C._get_mkldnn_enabled()) and weight.numel() > 0
