"""3-D convolutions as matrix products on channels-last columns, for what torch computes on contiguous ones only.

A convolution relates an image to a grid of window positions: every position sees a column, the window's elements with
their channels side by side. Gathering columns and multiplying them by the weight is a convolution forward, and a
transposed one backward; multiplying and scattering columns is the other way round. Weights are (grid channels, window
x image channels) matrices, which a channels-last weight is without a copy. Work goes slab by slab, so that the columns
in memory stay few.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from nhwc.kernels.layouts import as_channels_last, empty_channels_last, from_rows, rows_of

#: Of the columns of a slab.
_SLAB_BYTES = 16 << 20
_COARSE = (torch.bfloat16, torch.float16)


class Window(NamedTuple):
    """Sizes of a window and how it moves; depth, height, width."""

    sizes: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def overlaps(self) -> bool:
        """Whether an element can lie in the windows of two positions."""
        return any(each > stride for each, stride in zip(self.reach, self.stride, strict=True))

    @property
    def reach(self) -> tuple[int, ...]:
        """How many elements of the image the window spans."""
        return tuple(step * (size - 1) + 1 for size, step in zip(self.sizes, self.dilation, strict=True))

    @property
    def is_element(self) -> bool:
        """Whether each position sees one element, at its own place: columns are then the image's own rows."""
        return set(self.sizes) == set(self.stride) == {1} and not any(self.padding)

    def tiles(self, image: Sequence[int]) -> bool:
        """Whether the windows lie side by side, without gaps, and cover an image of spatial sizes ``image``."""
        fits = all(size % extent == 0 for size, extent in zip(image, self.sizes, strict=True))
        return fits and self.stride == self.sizes == self.reach and not any(self.padding)


def grid_of(image: Sequence[int], window: Window) -> tuple[int, ...]:
    """How many positions a window has on an image of spatial sizes ``image``; below 1 where it does not fit."""
    return tuple(
        (size + 2 * around - step * (extent - 1) - 1) // stride + 1
        for size, extent, stride, around, step in zip(image, *window, strict=True)
    )


def image_of(grid: Sequence[int], window: Window, output_padding: Sequence[int]) -> tuple[int, ...]:
    """The spatial sizes of a transposed convolution's result."""
    return tuple(
        (count - 1) * stride - 2 * around + step * (size - 1) + 1 + more
        for count, size, stride, around, step, more in zip(grid, *window, output_padding, strict=True)
    )


def gathered(
    image: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, window: Window, grid: Sequence[int]
) -> torch.Tensor:
    """Columns of ``image`` times the weight: (N, grid channels, *grid), channels last."""
    matrix, padded = _matrix(weight).t(), _padded(image, window)
    result = empty_channels_last((image.shape[0], weight.shape[0], *grid), image)
    rows = rows_of(result)
    for slab in _slabs(result, weight):
        _product(_columns(padded, slab, window, grid), matrix, bias, into=_flat(rows, slab))
    return result


def scattered(
    grid: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, window: Window, image: Sequence[int]
) -> torch.Tensor:
    """The grid times the weight, each column added up where its window lies: (N, image channels, *image)."""
    coarse = window.overlaps and grid.dtype in _COARSE  # sums of many rounded terms
    shape = (grid.shape[0], weight.shape[1], *image)
    sums = empty_channels_last(shape, grid, torch.float32 if coarse else grid.dtype)
    if window.tiles(image):
        return _laid(sums, rows_of(as_channels_last(grid)), weight, bias, window)
    if bias is None:
        sums.zero_()
    else:
        rows_of(sums).copy_(bias)
    rows, matrix = rows_of(as_channels_last(grid)), _matrix(weight)
    for slab in _slabs(grid, weight):
        columns = _flat(rows, slab).mm(matrix).view(-1, *grid.shape[3:], *window.sizes, weight.shape[1])
        _add(rows_of(sums)[slab.sample], columns, slab.first, window)
    return empty_channels_last(shape, grid).copy_(sums) if coarse else sums


def weight_gradient(grid: torch.Tensor, image: torch.Tensor, weight: torch.Tensor, window: Window) -> torch.Tensor:
    """The gradient of ``weight``, from the grid and the image of a convolution or their gradients; channels last."""
    rows, padded = rows_of(as_channels_last(grid)), _padded(image, window)
    result = empty_channels_last(weight.shape, weight).zero_()
    matrix = _matrix(result)
    for slab in _slabs(grid, weight):
        matrix.addmm_(_flat(rows, slab).t(), _columns(padded, slab, window, grid.shape[2:]))
    return result


class _Slab(NamedTuple):
    """Some depths of a sample's grid."""

    sample: int
    first: int
    depths: int


def _slabs(grid: torch.Tensor, weight: torch.Tensor) -> Iterator[_Slab]:
    samples, _, depth, height, width = grid.shape
    one = height * width * (weight.numel() // max(weight.shape[0], 1)) * grid.element_size()
    step = max(1, _SLAB_BYTES // max(one, 1))
    for sample, first in itertools.product(range(samples), range(0, depth, step)):
        yield _Slab(sample, first, min(step, depth - first))


def _product(
    rows: torch.Tensor, matrix: torch.Tensor, bias: torch.Tensor | None, into: torch.Tensor | None = None
) -> torch.Tensor:
    return torch.mm(rows, matrix, out=into) if bias is None else torch.addmm(bias, rows, matrix, out=into)


def _matrix(weight: torch.Tensor) -> torch.Tensor:
    return rows_of(as_channels_last(weight)).reshape(weight.shape[0], -1)


def _flat(rows: torch.Tensor, slab: _Slab) -> torch.Tensor:
    return rows[slab.sample, slab.first : slab.first + slab.depths].view(-1, rows.shape[-1])


def _padded(image: torch.Tensor, window: Window) -> torch.Tensor:
    image = as_channels_last(image)
    if not any(window.padding):
        return image
    depth, height, width = window.padding
    around = (width, width, height, height, depth, depth)
    return as_channels_last(torch.ops.aten.constant_pad_nd.default(image, around, 0))


def _columns(padded: torch.Tensor, slab: _Slab, window: Window, grid: Sequence[int]) -> torch.Tensor:
    """(positions, window x channels); a copy, but for windows of one element."""
    if window.is_element:
        return _flat(rows_of(padded), slab)
    channels = padded.shape[1]
    batch, _, *steps = padded.stride()
    moves = [step * stride for step, stride in zip(steps, window.stride, strict=True)]
    inside = [step * dilation for step, dilation in zip(steps, window.dilation, strict=True)]
    start = padded.storage_offset() + slab.sample * batch + slab.first * moves[0]
    seen = padded.as_strided((slab.depths, *grid[1:], *window.sizes, channels), (*moves, *inside, 1), start)
    return seen.reshape(-1, window.sizes[0] * window.sizes[1] * window.sizes[2] * channels)


def _laid(
    result: torch.Tensor, rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, window: Window
) -> torch.Tensor:
    """Columns that tile the image, each put where it belongs."""
    matrix = _matrix(weight)
    if window.is_element:  # where the product itself is written
        for slab in _slabs(from_rows(rows), weight):
            _product(_flat(rows, slab), matrix, bias, into=_flat(rows_of(result), slab))
        return result
    if bias is not None:
        bias = bias.expand(*window.sizes, -1).reshape(-1)
    split = [part for size, extent in zip(rows.shape[1:4], window.sizes, strict=True) for part in (size, extent)]
    tiles = rows_of(result).view(-1, *split, result.shape[1]).permute(0, 1, 3, 5, 2, 4, 6, 7)
    for slab in _slabs(from_rows(rows), weight):
        columns = _product(_flat(rows, slab), matrix, bias)
        into = tiles[slab.sample, slab.first : slab.first + slab.depths]
        into.copy_(columns.view(into.shape))
    return result


def _add(image: torch.Tensor, columns: torch.Tensor, first: int, window: Window) -> None:
    """Add columns (depths from ``first``, height, width, *window, channels) to an image, one element at a time."""
    for taps in itertools.product(*map(range, window.sizes)):
        spans = [
            _inside(size, tap * step - around, stride, range(start, start + count))
            for size, tap, stride, around, step, start, count in zip(
                image.shape, taps, *window[1:], (first, 0, 0), columns.shape, strict=False
            )
        ]
        if all(span is not None for span in spans):
            places, positions = zip(*spans, strict=True)
            image[places].add_(columns[(*positions, *taps)])


def _inside(size: int, shift: int, stride: int, positions: range) -> tuple[slice, slice] | None:
    """Where an element of the window lies inside the image: there, and of the positions which; None for nowhere."""
    low = max(positions.start, -(shift // stride))
    high = min(positions.stop - 1, (size - 1 - shift) // stride)
    if high < low:
        return None
    start = low * stride + shift
    return slice(start, (high * stride + shift) + 1, stride), slice(low - positions.start, high + 1 - positions.start)
