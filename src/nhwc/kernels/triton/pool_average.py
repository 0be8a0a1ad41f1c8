"""Average pooling on a GPU: regular in 3-D, adaptive in 2-D and 3-D, where torch's 3-D kernels answer contiguous."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from nhwc.kernels import gpu, pool_windows
from nhwc.kernels.layouts import empty_channels_last
from nhwc.kernels.pool_average import ADAPTIVE_AVG_POOL, AVG_POOL3D
from nhwc.kernels.triton.conversion import as_channels_last

_NONE = (1, 1, 1)


@dataclass(frozen=True)
class _Pooling:
    """Which windows: of sizes, steps and padding for each of depth, height and width, or adaptive.

    outputs: of each dimension that the input has. divisor: in place of a window's size, 0 for none.
    """

    outputs: tuple[int, ...]
    kernel: tuple[int, ...] = _NONE
    step: tuple[int, ...] = _NONE
    pad: tuple[int, ...] = (0, 0, 0)
    padded: bool = False
    divisor: int = 0
    adaptive: bool = False


@AVG_POOL3D.replaces("aten::avg_pool3d", "CUDA", where=gpu.has_triton)
def avg_pool3d(
    input: torch.Tensor,  # noqa: A002 torch's name
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0, 0, 0),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    pooling = _regular(input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return NotImplemented if pooling is None else _averaged(input, pooling)


@AVG_POOL3D.replaces("aten::avg_pool3d_backward", "CUDA", where=gpu.has_triton)
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
    pooling = _regular(input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return NotImplemented if pooling is None else _spread(grad_output, input, pooling)


@ADAPTIVE_AVG_POOL.replaces("aten::_adaptive_avg_pool2d", "CUDA", where=gpu.has_triton)
def adaptive_avg_pool2d(input: torch.Tensor, output_size: Sequence[int]) -> Any:  # noqa: A002
    return _adapted(input, output_size, 4)


@ADAPTIVE_AVG_POOL.replaces("aten::_adaptive_avg_pool3d", "CUDA", where=gpu.has_triton)
def adaptive_avg_pool3d(input: torch.Tensor, output_size: Sequence[int]) -> Any:  # noqa: A002
    return _adapted(input, output_size, 5)


@ADAPTIVE_AVG_POOL.replaces("aten::_adaptive_avg_pool2d_backward", "CUDA", where=gpu.has_triton)
def adaptive_avg_pool2d_backward(grad_output: torch.Tensor, input: torch.Tensor) -> Any:  # noqa: A002
    return _adapted_backward(grad_output, input, 4)


@ADAPTIVE_AVG_POOL.replaces("aten::_adaptive_avg_pool3d_backward", "CUDA", where=gpu.has_triton)
def adaptive_avg_pool3d_backward(grad_output: torch.Tensor, input: torch.Tensor) -> Any:  # noqa: A002
    return _adapted_backward(grad_output, input, 5)


def _regular(
    input: torch.Tensor,  # noqa: A002
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> _Pooling | None:
    if input.dim() != 5 or not gpu.serves(input):
        return None
    sizes = tuple(kernel_size), tuple(stride or kernel_size), tuple(padding)
    windows = pool_windows.regular(tuple(input.shape[2:]), *sizes, ceil_mode, count_include_pad, divisor_override)
    return None if windows is None else _Pooling(windows.shape, *sizes, count_include_pad, divisor_override or 0)


def _adapted(input: torch.Tensor, output_size: Sequence[int], rank: int) -> Any:  # noqa: A002
    if not gpu.serves_pooling(input, output_size, rank):
        return NotImplemented
    if math.prod(output_size) == 1:  # torch cuts so long a window into parts
        return as_channels_last(input.mean(tuple(range(2, rank)), keepdim=True))
    return _averaged(input, _Pooling(tuple(output_size), adaptive=True))


def _adapted_backward(grad_output: torch.Tensor, input: torch.Tensor, rank: int) -> Any:  # noqa: A002
    outputs = tuple(grad_output.shape[2:])
    if not gpu.serves_pooling(input, outputs, rank):
        return NotImplemented
    return _spread(grad_output, input, _Pooling(outputs, adaptive=True))


def _averaged(input: torch.Tensor, pooling: _Pooling) -> torch.Tensor:  # noqa: A002
    from nhwc.kernels.triton.programs import pool_average as programs

    result = empty_channels_last((*input.shape[:2], *pooling.outputs), input)
    reach = pooling.kernel
    if pooling.adaptive:
        sizes = zip(_volume(input.shape[2:]), _volume(pooling.outputs), strict=True)
        reach = tuple(min(size, gpu.blocks(size, count) + 1) for size, count in sizes)
    _run(programs.average, (input, result), (input, pooling), math.prod(pooling.outputs), reach)
    return result


def _spread(grad_output: torch.Tensor, input: torch.Tensor, pooling: _Pooling) -> Any:  # noqa: A002
    from nhwc.kernels.triton.programs import pool_average as programs

    if not gpu.has_shape(grad_output, (*input.shape[:2], *pooling.outputs), input):
        return NotImplemented
    result = empty_channels_last(input.shape, input)
    reach = tuple(gpu.blocks(size, step) for size, step in zip(pooling.kernel, pooling.step, strict=True))
    if pooling.adaptive:
        sizes = zip(_volume(input.shape[2:]), _volume(pooling.outputs), strict=True)
        reach = tuple(min(count, gpu.blocks(count, size) + 1) for size, count in sizes)
    operands = as_channels_last(grad_output), result
    _run(programs.average_backward, operands, (input, pooling), math.prod(input.shape[2:]), reach)
    return result


def _run(
    program: Any,
    operands: tuple[torch.Tensor, torch.Tensor],
    call: tuple[torch.Tensor, _Pooling],
    rows: int,
    reach: tuple[int, ...],
) -> None:
    """operands: read and written. call: the input of the forward operator, and its windows. rows: pixels written."""
    from nhwc.kernels.triton.types import in_triton, sums_of

    input, pooling = call  # noqa: A001 torch's name
    samples, channels = input.shape[:2]
    tile_rows, tile_channels = gpu.tile(rows, channels, elements=1024)
    row_blocks = gpu.blocks(rows, tile_rows)
    with gpu.on_device_of(input):
        program[(samples * row_blocks, gpu.blocks(channels, tile_channels))](
            *operands,
            channels,
            *_volume(input.shape[2:]),
            *_volume(pooling.outputs),
            *pooling.kernel,
            *pooling.step,
            *pooling.pad,
            *reach,
            pooling.divisor,
            row_blocks,
            adaptive=pooling.adaptive,
            padded=pooling.padded,
            overridden=pooling.divisor != 0,
            sums=in_triton(sums_of(input.dtype)),
            tile_rows=tile_rows,
            tile_channels=tile_channels,
        )


def _volume(sizes: Sequence[int]) -> tuple[int, ...]:
    return (1,) * (3 - len(sizes)) + tuple(sizes)
