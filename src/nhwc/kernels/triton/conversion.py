"""Copies between the formats on a GPU: tiled transpositions, where torch's copy strides through memory on one side."""

from __future__ import annotations

import math
from typing import Any

import torch

from nhwc.kernels import gpu, layouts
from nhwc.kernels.conversion import CONVERSION
from nhwc.kernels.dispatcher import is_plain
from nhwc.kernels.layouts import FORMATS, empty_channels_last, lies_channels_last, strides_are_contiguous

#: Numbers of these sizes in bytes are moved as integers, whatever they mean.
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
#: Below this many elements a program is no faster than torch's copy: both take what a launch takes.
_WORTHWHILE = 65536


@CONVERSION.replaces("aten::clone", "CUDA", where=gpu.has_triton)
def clone(self: Any, *, memory_format: torch.memory_format | None = None) -> Any:
    if not isinstance(self, torch.Tensor) or memory_format is None or self.numel() < _WORTHWHILE:
        return NotImplemented
    if self.dim() not in FORMATS or not _serves(self):
        return NotImplemented
    if memory_format == FORMATS[self.dim()] and strides_are_contiguous(self):
        result = empty_channels_last(self.shape, self)
    elif memory_format == torch.contiguous_format and lies_channels_last(self):
        result = torch.empty(self.shape, dtype=self.dtype, device=self.device)
    else:
        return NotImplemented
    transpose(self, result)
    return result


def as_channels_last(tensor: torch.Tensor) -> torch.Tensor:
    """``layouts.as_channels_last`` of a plain tensor on the GPU: a contiguous one is transposed by a program."""
    if lies_channels_last(tensor) or not (strides_are_contiguous(tensor) and _serves(tensor) and tensor.numel()):
        return layouts.as_channels_last(tensor)
    if tensor.is_contiguous(memory_format=FORMATS[tensor.dim()]):
        return layouts.as_channels_last(tensor)
    result = empty_channels_last(tensor.shape, tensor)
    transpose(tensor, result)
    return result


def transpose(source: torch.Tensor, target: torch.Tensor) -> None:
    """Fill ``target`` with a contiguous ``source``, and it is channels last, or the other way round.

    Both are of one shape, not empty, of one dtype of at most 8 bytes, on one device.
    """
    from nhwc.kernels.triton.programs import conversion as programs

    samples, channels = source.shape[:2]
    pixels = math.prod(source.shape[2:])
    rows, columns = (pixels, channels) if lies_channels_last(source) else (channels, pixels)
    # torch's own bytes under the name of an integer: the flat view of what lies densely, in the order of its memory
    size = _INTEGERS[source.element_size()]
    tile_rows, tile_columns = _tile(rows, columns)
    row_blocks, column_blocks = gpu.blocks(rows, tile_rows), gpu.blocks(columns, tile_columns)
    with gpu.on_device_of(source):
        programs.transpose[(samples * row_blocks * column_blocks,)](
            _flat(source).view(size),
            _flat(target).view(size),
            rows,
            columns,
            row_blocks,
            column_blocks,
            tile_rows=tile_rows,
            tile_columns=tile_columns,
        )


def _tile(rows: int, columns: int) -> tuple[int, int]:
    """4096 numbers, near to square: either side is in order where it is 32 wide; whole where there are fewer."""
    down, across = gpu.power_of_two(rows), gpu.power_of_two(columns)
    if down <= across:
        height = min(down, 64)
        return height, min(across, 4096 // height)
    width = min(across, 64)
    return min(down, 4096 // width), width


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.as_strided((tensor.numel(),), (1,))


def _serves(tensor: torch.Tensor) -> bool:
    """Whether its samples are numbers that can be moved as they are, by offsets of 32 bits."""
    return (
        gpu.reaches(tensor)
        and is_plain(tensor)
        and tensor.element_size() in _INTEGERS
        and not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
        and tensor.numel() // max(tensor.shape[0], 1) < gpu.LARGEST_SAMPLE
    )
