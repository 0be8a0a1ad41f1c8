"""grid_sample on a GPU, 2-D and 3-D, bilinear and nearest: torch's kernels, and cuDNN's, answer contiguous.

Bicubic sampling steps aside. The gradient of the input is added up by atomic additions in no fixed order, as torch's
is; where deterministic algorithms are asked for, torch's own refuses in its words.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from nhwc.kernels import gpu
from nhwc.kernels.dispatcher import is_plain
from nhwc.kernels.grid_sample import GRID_SAMPLE
from nhwc.kernels.layouts import canonical_strides, empty_channels_last
from nhwc.kernels.triton.conversion import as_channels_last
from nhwc.kernels.triton.types import in_triton, sums_of

_BILINEAR, _NEAREST = 0, 1


@GRID_SAMPLE.replaces("aten::grid_sampler_2d", "CUDA", where=gpu.has_triton)
@GRID_SAMPLE.replaces("aten::grid_sampler_3d", "CUDA", where=gpu.has_triton)
def grid_sampler(
    input: torch.Tensor,  # noqa: A002 torch's name
    grid: torch.Tensor,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
) -> Any:
    if not _serves(input, grid, interpolation_mode, padding_mode):
        return NotImplemented
    from nhwc.kernels.triton.programs import grid_sample as programs

    result = empty_channels_last((*input.shape[:2], *grid.shape[1:-1]), input)
    modes = interpolation_mode, padding_mode, align_corners
    rows, channels = math.prod(grid.shape[1:-1]), input.shape[1]
    tile_rows, tile_channels = gpu.tile(rows, channels, elements=1024)
    row_blocks = gpu.blocks(rows, tile_rows)
    with gpu.on_device_of(input):
        programs.sample[(input.shape[0] * row_blocks, gpu.blocks(channels, tile_channels))](
            input,
            grid,
            result,
            *_sizes(input, grid),
            row_blocks,
            tile_rows=tile_rows,
            tile_channels=tile_channels,
            **_options(input, modes),
        )
    return result


@GRID_SAMPLE.replaces("aten::grid_sampler_2d_backward", "CUDA", where=gpu.has_triton)
@GRID_SAMPLE.replaces("aten::grid_sampler_3d_backward", "CUDA", where=gpu.has_triton)
def grid_sampler_backward(
    grad_output: torch.Tensor,
    input: torch.Tensor,  # noqa: A002
    grid: torch.Tensor,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    output_mask: list[bool],
) -> Any:
    if torch.are_deterministic_algorithms_enabled() or not _serves(input, grid, interpolation_mode, padding_mode):
        return NotImplemented
    if not gpu.has_shape(grad_output, (*input.shape[:2], *grid.shape[1:-1]), input):
        return NotImplemented
    from nhwc.kernels.triton.programs import grid_sample as programs

    grad_grid = torch.empty(grid.shape, dtype=grid.dtype, device=grid.device)
    total = input
    if output_mask[0]:
        strides = canonical_strides(input.shape)
        total = torch.empty_strided(input.shape, strides, dtype=sums_of(input.dtype), device=input.device).zero_()
    modes = interpolation_mode, padding_mode, align_corners
    rows = math.prod(grid.shape[1:-1])
    tile_rows, tile_channels = gpu.tile(rows, input.shape[1], elements=512)
    row_blocks = gpu.blocks(rows, tile_rows)
    with gpu.on_device_of(input):
        programs.sample_backward[(input.shape[0] * row_blocks,)](
            as_channels_last(grad_output),
            input,
            grid,
            total,
            grad_grid,
            *_sizes(input, grid),
            row_blocks,
            wants_source=output_mask[0],
            tile_rows=tile_rows,
            tile_channels=tile_channels,
            **_options(input, modes),
        )
    return total.to(input.dtype) if output_mask[0] else None, grad_grid


@GRID_SAMPLE.replaces("aten::cudnn_grid_sampler", "CUDA", where=gpu.has_triton)
def cudnn_grid_sampler(self: torch.Tensor, grid: torch.Tensor) -> Any:
    """What torch calls for bilinear sampling of images between zeros, with aligned corners."""
    return grid_sampler(self, grid, _BILINEAR, 0, True)


@GRID_SAMPLE.replaces("aten::cudnn_grid_sampler_backward", "CUDA", where=gpu.has_triton)
def cudnn_grid_sampler_backward(self: torch.Tensor, grid: torch.Tensor, grad_output: torch.Tensor) -> Any:
    return grid_sampler_backward(grad_output, self, grid, _BILINEAR, 0, True, [True, True])


def _serves(input: torch.Tensor, grid: torch.Tensor, mode: int, padding: int) -> bool:  # noqa: A002
    dims = input.dim() - 2
    return (
        gpu.serves(input)
        and mode in {_BILINEAR, _NEAREST}
        and 0 <= padding <= 2
        and is_plain(grid)
        and grid.device == input.device
        and grid.dtype == input.dtype
        and grid.dim() == input.dim()
        and grid.shape[0] == input.shape[0]
        and grid.shape[-1] == dims
        and grid.numel() > 0
        and math.prod(grid.shape[1:-1]) * input.shape[1] < gpu.LARGEST_SAMPLE
        and not grid.is_neg()
        and grid.layout is torch.strided
    )


def _sizes(input: torch.Tensor, grid: torch.Tensor) -> tuple[int, ...]:  # noqa: A002
    """Channels, sizes of the input and of the output, strides of the grid; depth is 1 for images."""
    lift = (1,) if input.dim() == 4 else ()
    still = (0,) if input.dim() == 4 else ()
    strides = grid.stride()
    return (
        *(input.shape[1], *lift, *input.shape[2:], *lift, *grid.shape[1:-1]),
        *(strides[0], *still, *strides[1:]),
    )


def _options(input: torch.Tensor, modes: tuple[int, int, bool]) -> dict[str, Any]:  # noqa: A002
    mode, padding, aligned = modes
    corners = 1 if mode == _NEAREST else 2
    return {
        "padding": padding,
        "aligned": aligned,
        "nearest": mode == _NEAREST,
        "volume": input.dim() == 5,
        "corners_depth": corners if input.dim() == 5 else 1,
        "corners": corners,
        "sums": in_triton(sums_of(input.dtype)),
    }
