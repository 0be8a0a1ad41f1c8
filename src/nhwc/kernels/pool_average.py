"""Average pooling, regular in 3-D and adaptive in 2-D and 3-D, straight on channels-last rows.

torch's avg_pool3d and adaptive_avg_pool3d copy and answer contiguous; its adaptive pooling to one pixel is a mean,
whose gradient is an expanded tensor: contiguous for whatever comes before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from nhwc.kernels import gpu, native, pool_windows
from nhwc.kernels.dispatcher import is_plain
from nhwc.kernels.layouts import as_channels_last, empty_channels_last, is_channels_last
from nhwc.kernels.pool_windows import Windows
from nhwc.kernels.registry import kernel

AVG_POOL3D = kernel(
    "avg_pool3d",
    "3-D average pooling, forward and backward",
    native="two 2-D poolings do it forward in float32 and float64; the rest is torch's own, which loses the format",
    native_only=("*_backward",),
)
ADAPTIVE_AVG_POOL = kernel(
    "adaptive_avg_pool",
    "2-D and 3-D adaptive average pooling, global pooling included, forward and backward",
    native="torch's own kernels run: they lose the format in 3-D and in the gradient of global pooling",
    native_only=("*",),
)

_forward = native.Function("pool_average_forward", "ippp" + "ll")
_backward = native.Function("pool_average_backward", "ippp" + "ll")


@AVG_POOL3D.replaces("aten::avg_pool3d")
def avg_pool3d(
    input: torch.Tensor,  # noqa: A002 torch's name
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0, 0, 0),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    windows = _regular(input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    if windows is None:
        return NotImplemented
    if native.is_available():
        return _averaged(input, windows)
    if input.dtype not in {torch.float32, torch.float64}:  # a 16-bit result would be rounded twice
        return NotImplemented
    options = ceil_mode, count_include_pad
    return _in_two_steps(input, kernel_size, stride or kernel_size, padding, options, divisor_override)


@AVG_POOL3D.replaces("aten::avg_pool3d_backward")
def avg_pool3d_backward(
    grad_output: torch.Tensor,
    input: torch.Tensor,  # noqa: A002
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Any:
    windows = _regular(input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    if windows is None or not native.is_available():
        return NotImplemented
    return _spread(grad_output, input, windows)


@ADAPTIVE_AVG_POOL.replaces("aten::adaptive_avg_pool2d", "CompositeImplicitAutograd")
def adaptive_avg_pool2d(input: torch.Tensor, output_size: Sequence[int]) -> Any:  # noqa: A002
    if not _has_adaptive_kernel(input, output_size, 4):
        return NotImplemented
    return torch.ops.aten._adaptive_avg_pool2d.default(input, output_size)


@ADAPTIVE_AVG_POOL.replaces("aten::adaptive_avg_pool3d", "CompositeImplicitAutograd")
def adaptive_avg_pool3d(input: torch.Tensor, output_size: Sequence[int]) -> Any:  # noqa: A002
    if not _has_adaptive_kernel(input, output_size, 5):
        return NotImplemented
    return torch.ops.aten._adaptive_avg_pool3d.default(input, output_size)


@ADAPTIVE_AVG_POOL.replaces("aten::_adaptive_avg_pool2d")
def _adaptive_avg_pool2d(input: torch.Tensor, output_size: Sequence[int]) -> Any:  # noqa: A002
    windows = _adaptive(input, output_size, 4)
    return NotImplemented if windows is None else _averaged(input, windows)


@ADAPTIVE_AVG_POOL.replaces("aten::_adaptive_avg_pool3d")
def _adaptive_avg_pool3d(input: torch.Tensor, output_size: Sequence[int]) -> Any:  # noqa: A002
    windows = _adaptive(input, output_size, 5)
    return NotImplemented if windows is None else _averaged(input, windows)


@ADAPTIVE_AVG_POOL.replaces("aten::_adaptive_avg_pool2d_backward")
def _adaptive_avg_pool2d_backward(grad_output: torch.Tensor, input: torch.Tensor) -> Any:  # noqa: A002
    windows = _adaptive(input, grad_output.shape[2:], 4)
    return NotImplemented if windows is None else _spread(grad_output, input, windows)


@ADAPTIVE_AVG_POOL.replaces("aten::_adaptive_avg_pool3d_backward")
def _adaptive_avg_pool3d_backward(grad_output: torch.Tensor, input: torch.Tensor) -> Any:  # noqa: A002
    windows = _adaptive(input, grad_output.shape[2:], 5)
    return NotImplemented if windows is None else _spread(grad_output, input, windows)


def _regular(
    input: torch.Tensor,  # noqa: A002
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Windows | None:
    if not _serves(input, 5):
        return None
    sizes = tuple(kernel_size), tuple(stride or kernel_size), tuple(padding)
    return pool_windows.regular(tuple(input.shape[2:]), *sizes, ceil_mode, count_include_pad, divisor_override)


def _has_adaptive_kernel(input: torch.Tensor, output_size: Sequence[int], rank: int) -> bool:  # noqa: A002
    """Whether pooling below the composite operator keeps the format: by the compiled loops, or on a GPU."""
    return _adaptive(input, output_size, rank) is not None or gpu.serves_pooling(input, output_size, rank)


def _adaptive(input: torch.Tensor, output_size: Sequence[int], rank: int) -> Windows | None:  # noqa: A002
    if not (native.is_available() and _serves(input, rank)):
        return None
    if len(output_size) != rank - 2 or any(each < 1 for each in output_size):
        return None
    return pool_windows.adaptive(tuple(input.shape[2:]), tuple(output_size))


def _serves(input: torch.Tensor, rank: int) -> bool:  # noqa: A002
    return (
        is_plain(input)
        and input.dim() == rank
        and is_channels_last(input)
        and input.numel() > 0
        and native.dtype_code(input.dtype) is not None
    )


def _averaged(input: torch.Tensor, windows: Windows) -> torch.Tensor:  # noqa: A002
    samples, channels = input.shape[:2]
    result = empty_channels_last((samples, channels, *windows.shape), input)
    _forward(native.dtype_code(input.dtype), input, result, windows.table, samples, channels)
    return result


def _spread(grad_output: torch.Tensor, input: torch.Tensor, windows: Windows) -> Any:  # noqa: A002
    samples, channels = input.shape[:2]
    if not (is_plain(grad_output) and grad_output.dtype == input.dtype and grad_output.device == input.device):
        return NotImplemented
    if grad_output.shape != (samples, channels, *windows.shape):
        return NotImplemented
    grad = as_channels_last(grad_output)
    result = empty_channels_last(input.shape, input)
    _backward(native.dtype_code(input.dtype), grad, result, windows.table, samples, channels)
    return result


def _in_two_steps(
    input: torch.Tensor,  # noqa: A002
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    options: tuple[bool, bool],
    divisor_override: int | None,
) -> torch.Tensor:
    """A 3-D average is the 2-D one of every slice, then that along the depth: both on 4-D channels-last views."""
    samples, channels, depth, height, width = input.shape
    slices = input.permute(0, 2, 3, 4, 1).view(samples * depth, height, width, channels).permute(0, 3, 1, 2)
    divisor = None if divisor_override is None else 1
    flat: torch.Tensor = torch.ops.aten.avg_pool2d.default(
        slices, kernel_size[1:], stride[1:], padding[1:], *options, divisor
    )
    height, width = flat.shape[2:]
    columns = flat.permute(0, 2, 3, 1).reshape(samples, depth, 1, height * width * channels).permute(0, 3, 1, 2)
    along = [(each[0], 1) for each in (kernel_size, stride)]
    pooled: torch.Tensor = torch.ops.aten.avg_pool2d.default(
        columns, *along, (padding[0], 0), *options, divisor_override
    )
    rows = pooled.permute(0, 2, 3, 1).reshape(samples, pooled.shape[2], height, width, channels)
    return rows.permute(0, 4, 1, 2, 3)
