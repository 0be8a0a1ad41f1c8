"""3-D convolution where torch picks a backend that answers in contiguous: one small volume, float64, transposed ones.

A 1x1x1 convolution is a matrix product on the (N, D, H, W, C) view. In float32 any other runs forward in oneDNN, which
torch leaves aside for one small volume and which takes channels last. What remains, and the backward passes, are matrix
products on columns that lie in channels last. With groups torch's backend stays, and its result is brought back to
channels last in one pass.

The composites that only volumes reach are replaced, not ``aten::convolution``: a 2-D convolution never comes here.

Private interface, read from torch 2.11 to 2.14: ``torch._C._select_conv_backend`` and its names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from nhwc.kernels import conv3d_columns
from nhwc.kernels.conv3d_columns import Window
from nhwc.kernels.dispatcher import is_plain, tracks_forward_gradients
from nhwc.kernels.layouts import as_channels_last, is_channels_last
from nhwc.kernels.registry import kernel

CONV3D = kernel(
    "conv3d",
    "3-D convolutions, transposed ones too, where torch picks a backend that answers in contiguous",
    native="with groups, results come back to channels last by torch's own, slower copy",
    uses=("conversion",),
    ranks=(5,),
)

_LOSING = {"Slow3d", "SlowDilated3d", "SlowTranspose3d"}
_BACKENDS = getattr(torch._C, "_ConvBackend", None)
_NAMES: dict[Any, str] = {} if _BACKENDS is None else {value: name for name, value in _BACKENDS.__members__.items()}


class _Convolution(torch.autograd.Function):
    """A convolution whose result and gradients are channels last.

    arguments: stride, padding, dilation, transposed, output padding and groups, as ``aten::convolution`` has them.
    """

    @staticmethod
    def forward(
        ctx: Any,
        input: torch.Tensor,  # noqa: A002 torch's name
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        arguments: tuple[Any, ...],
    ) -> torch.Tensor:
        ctx.save_for_backward(input, weight)
        ctx.bias_sizes = None if bias is None else list(bias.shape)
        ctx.arguments = arguments
        stride, padding, dilation, transposed, output_padding, groups = arguments
        window = _window(weight, arguments)
        one = groups == 1 and window.is_element
        if not (one or transposed) and input.dtype == torch.float32 and _onednn_takes(weight):
            result = torch.ops.aten.mkldnn_convolution(input, weight, bias, padding, stride, dilation, groups)
            return as_channels_last(result)
        if groups > 1:
            return as_channels_last(torch.ops.aten.convolution(input, weight, bias, *arguments))
        if not transposed:
            grid = conv3d_columns.grid_of(input.shape[2:], window)
            return conv3d_columns.gathered(input, weight, bias, window, grid)
        image = conv3d_columns.image_of(input.shape[2:], window, output_padding)
        return conv3d_columns.scattered(input, weight, bias, window, image)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        input, weight = ctx.saved_tensors  # noqa: A001
        wanted = list(ctx.needs_input_grad[:3])
        if ctx.arguments[-1] == 1 and is_plain(grad) and not torch.is_grad_enabled():
            return (*_gradients(grad, input, weight, ctx.arguments, wanted), None)
        # in a backward pass that is differentiated itself, or with groups: torch's own
        found = torch.ops.aten.convolution_backward(grad, input, weight, ctx.bias_sizes, *ctx.arguments, wanted)
        return (*map(_relaid, found), None)


def _gradients(
    grad: torch.Tensor,
    input: torch.Tensor,  # noqa: A002
    weight: torch.Tensor,
    arguments: tuple[Any, ...],
    wanted: Sequence[bool],
) -> tuple[torch.Tensor | None, ...]:
    """Of input, weight and bias, as far as they are wanted."""
    window, transposed = _window(weight, arguments), arguments[3]
    grad = as_channels_last(grad)
    by_input = by_weight = by_bias = None
    if wanted[0] and transposed:
        by_input = conv3d_columns.gathered(grad, weight, None, window, input.shape[2:])
    elif wanted[0] and (around := _around_turned(input, weight, window)) is not None:
        turned = as_channels_last(weight.flip((2, 3, 4)).transpose(0, 1))
        by_input = torch.ops.aten.mkldnn_convolution(grad, turned, None, around, window.stride, window.dilation, 1)
        by_input = as_channels_last(by_input)
    elif wanted[0]:
        by_input = conv3d_columns.scattered(grad, weight, None, window, input.shape[2:])
    if wanted[1]:
        grid, image = (input, grad) if transposed else (grad, input)
        by_weight = conv3d_columns.weight_gradient(grid, image, weight, window)
    if wanted[2]:
        by_bias = grad.sum((0, 2, 3, 4))
    return by_input, by_weight, by_bias


def _around_turned(input: torch.Tensor, weight: torch.Tensor, window: Window) -> list[int] | None:  # noqa: A002
    """The padding with which the gradient of the input is a convolution by the turned weight, in oneDNN; else None."""
    around = [reach - 1 - before for reach, before in zip(window.reach, window.padding, strict=True)]
    takes = input.dtype == torch.float32 and not window.is_element and _onednn_takes(weight)
    return around if takes and set(window.stride) == {1} and min(around) >= 0 else None


def _window(weight: torch.Tensor, arguments: tuple[Any, ...]) -> Window:
    stride, padding, dilation, *_ = arguments
    return Window(tuple(weight.shape[2:]), tuple(stride), tuple(padding), tuple(dilation))


@CONV3D.replaces("aten::conv3d", "CompositeImplicitAutograd")
def conv3d(
    input: torch.Tensor,  # noqa: A002
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: Sequence[int] = (1, 1, 1),
    padding: Sequence[int] = (0, 0, 0),
    dilation: Sequence[int] = (1, 1, 1),
    groups: int = 1,
) -> Any:
    return _convolution(input, weight, bias, stride, padding, dilation, False, (0, 0, 0), groups)


@CONV3D.replaces("aten::conv3d.padding", "CompositeImplicitAutograd")
def conv3d_named_padding(
    input: torch.Tensor,  # noqa: A002
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: Sequence[int] = (1, 1, 1),
    padding: str = "valid",
    dilation: Sequence[int] = (1, 1, 1),
    groups: int = 1,
) -> Any:
    if weight.dim() != 5 or padding not in {"same", "valid"}:
        return NotImplemented
    around = [step * (size - 1) for step, size in zip(_three(dilation), weight.shape[2:], strict=True)]
    if padding == "valid":
        around = [0, 0, 0]
    elif set(_three(stride)) != {1} or any(size % 2 for size in around):
        return NotImplemented  # torch refuses the one, and pads the other on one side more
    sides = [size // 2 for size in around]
    return _convolution(input, weight, bias, stride, sides, dilation, False, (0, 0, 0), groups)


@CONV3D.replaces("aten::conv_transpose3d.input", "CompositeImplicitAutograd")
def conv_transpose3d(
    input: torch.Tensor,  # noqa: A002
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: Sequence[int] = (1, 1, 1),
    padding: Sequence[int] = (0, 0, 0),
    output_padding: Sequence[int] = (0, 0, 0),
    groups: int = 1,
    dilation: Sequence[int] = (1, 1, 1),
) -> Any:
    return _convolution(input, weight, bias, stride, padding, dilation, True, output_padding, groups)


def _convolution(
    input: torch.Tensor,  # noqa: A002
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    if not _serves(input, weight, bias) or min(dilation) < 1:
        return NotImplemented
    stride, padding, dilation, output_padding = map(_three, (stride, padding, dilation, output_padding))
    arguments = (stride, padding, dilation, transposed, output_padding, groups)
    is_product = groups == 1 and not transposed and _is_product(input, weight, bias, stride, padding)
    if not is_product and _backend(input, weight, bias, *arguments) not in _LOSING:
        return NotImplemented
    return _Convolution.apply(input, weight, bias, arguments)


def _three(sizes: Sequence[int]) -> list[int]:
    return list(sizes) * 3 if len(sizes) == 1 else list(sizes)


def _relaid(gradient: torch.Tensor | None) -> torch.Tensor | None:
    if gradient is None or gradient.dim() != 5:
        return gradient
    if torch.is_grad_enabled():  # in a backward pass that is differentiated itself
        return gradient.contiguous(memory_format=torch.channels_last_3d)
    return as_channels_last(gradient)


def _serves(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> bool:  # noqa: A002
    return (
        input.dim() == 5
        and weight.dim() == 5
        and is_plain(input)
        and is_plain(weight)
        and (bias is None or is_plain(bias))
        and input.numel() > 0
        and weight.dtype == input.dtype
        and is_channels_last(input)
        and not tracks_forward_gradients()
    )


def _backend(
    input: torch.Tensor,  # noqa: A002
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    *arguments: Any,
) -> str:
    """The backend that torch would run, by name; empty where torch would refuse the call or cannot say."""
    try:
        return _NAMES.get(torch._C._select_conv_backend(input, weight, bias, *arguments), "")
    except (RuntimeError, AttributeError, TypeError):
        return ""


def _is_product(
    input: torch.Tensor,  # noqa: A002
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
) -> bool:
    """Whether the window is one element, which has no dilation, and moves by one: a matrix product; and it fits."""
    wanted, channels, *window = weight.shape
    return (
        window == [1, 1, 1]
        and stride == [1, 1, 1]
        and padding == [0, 0, 0]
        and channels == input.shape[1]
        and (bias is None or (bias.shape == (wanted,) and bias.dtype == input.dtype))
    )


def _onednn_takes(weight: torch.Tensor) -> bool:
    return bool(torch._C._get_mkldnn_enabled()) and weight.numel() > 0
