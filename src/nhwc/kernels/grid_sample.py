"""grid_sample, 2-D and 3-D: each point of the grid gathers whole rows of channels.

torch's kernels go through one channel after the other and answer contiguous.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from nhwc.kernels import native
from nhwc.kernels.dispatcher import is_plain
from nhwc.kernels.layouts import as_channels_last, empty_channels_last, loops_serve
from nhwc.kernels.registry import kernel

GRID_SAMPLE = kernel(
    "grid_sample",
    "grid_sample, 2-D and 3-D, forward and backward",
    native="torch's own kernels run: contiguous results",
    native_only=("*",),
)

_forward = native.Function("grid_sample_forward", "ippp" + "plll")
_backward = native.Function("grid_sample_backward", "ippppp" + "plll")
_beyond = native.Function("grid_sample_beyond", "ipdpp")

_BICUBIC = 2
#: Fewer channels than this fill no vector: torch's kernel, which goes along the points, is then several times as fast.
_FEWEST_CHANNELS = 16
#: Coordinates beyond it (the image is -1 to 1), and those that are no numbers, are torch's to read.
_FAR = 1e4


@GRID_SAMPLE.replaces("aten::grid_sampler_2d")
@GRID_SAMPLE.replaces("aten::grid_sampler_3d")
def grid_sampler(
    input: torch.Tensor,  # noqa: A002 torch's name
    grid: torch.Tensor,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
) -> Any:
    if not _serves(input, grid, interpolation_mode, padding_mode):
        return NotImplemented
    result = empty_channels_last((*input.shape[:2], *grid.shape[1:-1]), input)
    code = native.dtype_code(input.dtype)
    _forward(code, input, grid, result, _sizes(input, grid), interpolation_mode, padding_mode, align_corners)
    return result


@GRID_SAMPLE.replaces("aten::grid_sampler_2d_backward")
@GRID_SAMPLE.replaces("aten::grid_sampler_3d_backward")
def grid_sampler_backward(
    grad_output: torch.Tensor,
    input: torch.Tensor,  # noqa: A002
    grid: torch.Tensor,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    output_mask: list[bool],
) -> Any:
    if not (_serves(input, grid, interpolation_mode, padding_mode) and is_plain(grad_output)):
        return NotImplemented
    if grad_output.dtype != input.dtype or grad_output.shape != (*input.shape[:2], *grid.shape[1:-1]):
        return NotImplemented
    grad = as_channels_last(grad_output)
    grad_input = empty_channels_last(input.shape, input) if output_mask[0] else None
    grad_grid = torch.empty(grid.shape, dtype=grid.dtype, device="cpu")
    operands = native.dtype_code(input.dtype), grad, input, grid, grad_input, grad_grid
    _backward(*operands, _sizes(input, grid), interpolation_mode, padding_mode, align_corners)
    return grad_input, grad_grid


def _serves(input: torch.Tensor, grid: torch.Tensor, mode: int, padding: int) -> bool:  # noqa: A002
    dims = input.dim() - 2
    return (
        loops_serve(input)
        and is_plain(grid)
        and grid.device.type == "cpu"
        and grid.dtype == input.dtype
        and grid.dim() == input.dim()
        and grid.shape[0] == input.shape[0]
        and grid.shape[-1] == dims
        and input.shape[1] >= _FEWEST_CHANNELS
        and grid.numel() > 0
        and 0 <= mode <= (_BICUBIC if dims == 2 else 1)
        and 0 <= padding <= 2
        and _is_near(input, grid)
    )


def _is_near(input: torch.Tensor, grid: torch.Tensor) -> bool:  # noqa: A002
    found = ctypes.c_int64(0)
    _beyond(native.dtype_code(grid.dtype), grid, _FAR, ctypes.addressof(found), _sizes(input, grid))
    return found.value == 0


def _sizes(input: torch.Tensor, grid: torch.Tensor) -> Any:  # noqa: A002
    lift = (1,) if input.dim() == 4 else ()
    still = (0,) if input.dim() == 4 else ()
    strides = grid.stride()
    values = (
        *(*input.shape[:2], input.dim() - 2),
        *(*lift, *input.shape[2:]),
        *(*lift, *grid.shape[1:-1]),
        *(strides[0], *still, *strides[1:]),
    )
    return (ctypes.c_int64 * len(values))(*values)
