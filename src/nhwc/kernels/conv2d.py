"""2-D convolutions in float32 on the CPU that something is faster for than what torch runs.

torch's own keep channels last; what each way serves and gains is told by its file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from nhwc.kernels import conv2d_products, conv2d_winograd
from nhwc.kernels.conv2d_operands import fits
from nhwc.kernels.dispatcher import is_plain
from nhwc.kernels.layouts import as_channels_last
from nhwc.kernels.registry import kernel

CONV2D = kernel(
    "conv2d",
    "float32 convolutions with stride 1: 3x3 and their input's gradients by Winograd's algorithm, 1x1 of small images "
    "as products",
    native="torch's own run for 3x3",
    ranks=(4,),
    mends=False,
)


@CONV2D.replaces("aten::convolution", keeps_strides=True)
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
    del output_padding
    if weight.dim() != 4 or transposed or groups != 1 or not (bias is None or fits(bias, (weight.shape[0],))):
        return NotImplemented
    if weight.shape[3] == 1:
        if not conv2d_products.serves(input, weight, stride, padding):
            return NotImplemented
        faster = conv2d_products.is_faster_forward(input)
        return conv2d_products.convolved(input, weight, bias) if faster else NotImplemented
    around = conv2d_winograd.padding_served(input, weight, stride, padding, dilation)
    result = None if around is None else conv2d_winograd.convolved(input, weight, bias, around, turned=False)
    return NotImplemented if result is None else result


@CONV2D.replaces("aten::convolution_backward", keeps_strides=True)
def convolution_backward(
    grad_output: torch.Tensor,
    input: torch.Tensor,  # noqa: A002 torch's name
    weight: torch.Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> Any:
    if weight.dim() != 4 or transposed or groups != 1:
        return NotImplemented
    pointwise = weight.shape[3] == 1
    if pointwise:
        around = 0 if conv2d_products.serves(input, weight, stride, padding) else None
    else:
        around = conv2d_winograd.padding_served(input, weight, stride, padding, dilation) if output_mask[0] else None
    if around is None or not is_plain(grad_output) or grad_output.dtype != torch.float32:
        return NotImplemented
    size = [each + 2 * around + 1 - weight.shape[3] for each in input.shape[2:]]
    if list(grad_output.shape) != [input.shape[0], weight.shape[0], *size] or not grad_output.is_cpu:
        return NotImplemented
    grad = as_channels_last(grad_output)
    found: list[torch.Tensor | None] = [None, None]
    if pointwise:
        if output_mask[0] and conv2d_products.is_faster_by_input(input):
            found[0] = conv2d_products.by_input(grad, weight)
        if output_mask[1] and conv2d_products.is_faster_by_weight(input):
            found[1] = conv2d_products.by_weight(grad, input)
    else:
        found[0] = conv2d_winograd.convolved(grad, weight, None, 2 - around, turned=True)
    if all(each is None for each in found):
        return NotImplemented
    rest = [wanted and each is None for wanted, each in zip(output_mask, (*found, None), strict=True)]
    if not any(rest):
        return *found, None
    others = (bias_sizes, stride, padding, dilation, transposed, output_padding, groups)
    left = torch.ops.aten.convolution_backward(grad, input, weight, *others, rest)
    return tuple(each if each is not None else other for each, other in zip((*found, None), left, strict=True))
