"""A transposition of every sample, tile by tile."""

import triton
import triton.language as tl


@triton.jit
def transpose(
    source,
    target,
    rows,
    columns,
    row_blocks,
    column_blocks,
    tile_rows: tl.constexpr,
    tile_columns: tl.constexpr,
):
    """target (samples, columns, rows) from source (samples, rows, columns), of numbers of one size.

    A program reads a tile by rows and writes it by columns; through shared memory, so that both are in order. Each
    element is read once and written once. Grid: samples * row_blocks * column_blocks.
    """
    place = tl.program_id(0)
    row = place // column_blocks % row_blocks * tile_rows + tl.arange(0, tile_rows)
    column = place % column_blocks * tile_columns + tl.arange(0, tile_columns)
    begin = (place // column_blocks // row_blocks).to(tl.int64) * rows * columns
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    numbers = tl.load(source + begin + row[:, None] * columns + column[None, :], mask=inside)
    turned = target + begin + column[:, None] * rows + row[None, :]
    tl.store(turned, tl.trans(numbers), mask=(column < columns)[:, None] & (row < rows)[None, :])
