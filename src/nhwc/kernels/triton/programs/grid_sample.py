"""grid_sample of channels-last images and volumes: a point gathers, or scatters, whole rows of channels.

An image is a volume of depth 1, of which ``corners_depth`` (1, for a volume 2) says how many planes a point lies
between. ``padding`` is torch's: 0 zeros, 1 border, 2 reflection. ``sums`` is the type that is computed in.
"""

import triton
import triton.language as tl


@triton.jit
def _place(coordinate, size, padding: tl.constexpr, aligned: tl.constexpr):
    """Where a coordinate (-1 to 1 over the image) lies in pixels, and how far it moves there per coordinate."""
    if aligned:
        slope = coordinate * 0.0 + (size - 1) * 0.5
        place = (coordinate + 1.0) * 0.5 * (size - 1)
    else:
        slope = coordinate * 0.0 + size * 0.5
        place = ((coordinate + 1.0) * size - 1.0) * 0.5
    if padding == 2:
        low = 0.0 if aligned else -0.5
        span = size - 1.0 if aligned else size + 0.0
        from_low = tl.abs(place - low)
        slope = tl.where(place < low, -slope, slope)
        period = tl.maximum(span, 1.0)
        flips = tl.floor(from_low / period)
        rest = from_low - flips * period
        is_even = flips - 2.0 * tl.floor(flips * 0.5) == 0.0
        slope = tl.where(span > 0.0, tl.where(is_even, slope, -slope), 0.0)
        place = tl.where(span > 0.0, tl.where(is_even, rest + low, period - rest + low), 0.0)
    if padding != 0:
        slope = tl.where((place > 0.0) & (place < size - 1.0), slope, 0.0)
        place = tl.minimum(tl.maximum(place, 0.0), size - 1.0)
    # beyond it, and for what is no number, every corner is outside
    is_near = tl.abs(place) < 1e9
    return tl.where(is_near, place, -100.0), tl.where(is_near, slope, 0.0)


@triton.jit
def _corner(place, which: tl.constexpr, corners: tl.constexpr, nearest: tl.constexpr):
    """Index and weight of a corner along one dimension, and how the weight grows with the place."""
    below = tl.floor(place)
    part = place - below
    if nearest:
        odd = below - 2.0 * tl.floor(below * 0.5) != 0.0
        index = below + tl.where((part > 0.5) | ((part == 0.5) & odd), 1.0, 0.0)
        weight = part * 0.0 + 1.0
        growth = part * 0.0
    elif corners == 1:
        index = below
        weight = part * 0.0 + 1.0
        growth = part * 0.0
    elif which == 0:
        index = below
        weight = 1.0 - part
        growth = part * 0.0 - 1.0
    else:
        index = below + 1.0
        weight = part
        growth = part * 0.0 + 1.0
    return index.to(tl.int32), weight, growth


@triton.jit
def sample(
    source,
    grid,
    target,
    channels,
    depth,
    height,
    width,
    out_depth,
    out_height,
    out_width,
    grid_sample,
    grid_depth,
    grid_height,
    grid_width,
    grid_last,
    row_blocks,
    padding: tl.constexpr,
    aligned: tl.constexpr,
    nearest: tl.constexpr,
    volume: tl.constexpr,
    corners_depth: tl.constexpr,
    corners: tl.constexpr,
    sums: tl.constexpr,
    tile_rows: tl.constexpr,
    tile_channels: tl.constexpr,
):
    """target (samples, points, channels) from source (samples, pixels, channels) at grid, of any strides.

    Reads each point once per block of channels, and as many rows as the point has corners, neighbours mostly from the
    cache; writes each output once. Grid of programs: samples * row_blocks, then blocks of channels.
    """
    program = tl.program_id(0)
    row = program % row_blocks * tile_rows + tl.arange(0, tile_rows)
    channel = tl.program_id(1) * tile_channels + tl.arange(0, tile_channels)
    image = (program // row_blocks).to(tl.int64)
    points = out_depth * out_height * out_width
    known = row < points
    at = image * grid_sample + row // (out_height * out_width) * grid_depth
    at += row // out_width % out_height * grid_height + row % out_width * grid_width
    x, _ = _place(tl.load(grid + at, mask=known, other=0.0).to(sums), width, padding, aligned)
    y, _ = _place(tl.load(grid + at + grid_last, mask=known, other=0.0).to(sums), height, padding, aligned)
    z = tl.zeros((tile_rows,), sums)
    if volume:
        z, _ = _place(tl.load(grid + at + 2 * grid_last, mask=known, other=0.0).to(sums), depth, padding, aligned)
    source += image * depth * height * width * channels
    total = tl.zeros((tile_rows, tile_channels), sums)
    for i in tl.static_range(corners_depth):
        plane, by_plane, _ = _corner(z, i, corners_depth, nearest)
        for j in tl.static_range(corners):
            line, by_line, _ = _corner(y, j, corners, nearest)
            for k in tl.static_range(corners):
                column, by_column, _ = _corner(x, k, corners, nearest)
                inside = known & (plane >= 0) & (plane < depth) & (line >= 0) & (line < height)
                inside = inside & (column >= 0) & (column < width)
                pixel = tl.where(inside, (plane * height + line) * width + column, 0)
                mask = inside[:, None] & (channel < channels)[None, :]
                values = tl.load(source + pixel[:, None] * channels + channel[None, :], mask=mask, other=0.0).to(sums)
                total += values * (by_plane * by_line * by_column)[:, None]
    target += image * points * channels
    mask = known[:, None] & (channel < channels)[None, :]
    tl.store(target + row[:, None] * channels + channel[None, :], total.to(target.dtype.element_ty), mask=mask)


@triton.jit
def sample_backward(
    grad,
    source,
    grid,
    target,
    grid_target,
    channels,
    depth,
    height,
    width,
    out_depth,
    out_height,
    out_width,
    grid_sample,
    grid_depth,
    grid_height,
    grid_width,
    grid_last,
    row_blocks,
    padding: tl.constexpr,
    aligned: tl.constexpr,
    nearest: tl.constexpr,
    volume: tl.constexpr,
    corners_depth: tl.constexpr,
    corners: tl.constexpr,
    wants_source: tl.constexpr,
    sums: tl.constexpr,
    tile_rows: tl.constexpr,
    tile_channels: tl.constexpr,
):
    """Adds to target (samples, pixels, channels), of type ``sums`` and zero before, and fills grid_target (points, 2 or
    3), which is contiguous.

    Reads each gradient once and source as ``sample`` does; adds as many rows to target as a point has corners, by
    atomic additions, whose order is not fixed. Grid of programs: samples * row_blocks.
    """
    program = tl.program_id(0)
    row = program % row_blocks * tile_rows + tl.arange(0, tile_rows)
    image = (program // row_blocks).to(tl.int64)
    points = out_depth * out_height * out_width
    known = row < points
    at = image * grid_sample + row // (out_height * out_width) * grid_depth
    at += row // out_width % out_height * grid_height + row % out_width * grid_width
    x, x_slope = _place(tl.load(grid + at, mask=known, other=0.0).to(sums), width, padding, aligned)
    y, y_slope = _place(tl.load(grid + at + grid_last, mask=known, other=0.0).to(sums), height, padding, aligned)
    z = tl.zeros((tile_rows,), sums)
    z_slope = tl.zeros((tile_rows,), sums)
    if volume:
        z, z_slope = _place(tl.load(grid + at + 2 * grid_last, mask=known, other=0.0).to(sums), depth, padding, aligned)
    source += image * depth * height * width * channels
    target += image * depth * height * width * channels
    grad += image * points * channels
    along_x = tl.zeros((tile_rows,), sums)
    along_y = tl.zeros((tile_rows,), sums)
    along_z = tl.zeros((tile_rows,), sums)
    for start in range(0, channels, tile_channels):
        channel = start + tl.arange(0, tile_channels)
        filled = known[:, None] & (channel < channels)[None, :]
        incoming = tl.load(grad + row[:, None] * channels + channel[None, :], mask=filled, other=0.0).to(sums)
        for i in tl.static_range(corners_depth):
            plane, by_plane, over_plane = _corner(z, i, corners_depth, nearest)
            for j in tl.static_range(corners):
                line, by_line, over_line = _corner(y, j, corners, nearest)
                for k in tl.static_range(corners):
                    column, by_column, over_column = _corner(x, k, corners, nearest)
                    inside = known & (plane >= 0) & (plane < depth) & (line >= 0) & (line < height)
                    inside = inside & (column >= 0) & (column < width)
                    pixel = tl.where(inside, (plane * height + line) * width + column, 0)
                    mask = inside[:, None] & (channel < channels)[None, :]
                    place = pixel[:, None] * channels + channel[None, :]
                    if wants_source:
                        spread = incoming * (by_plane * by_line * by_column)[:, None]
                        tl.atomic_add(target + place, spread, mask=mask, sem="relaxed")
                    if not nearest:
                        values = tl.load(source + place, mask=mask, other=0.0).to(sums)
                        product = tl.sum(incoming * values, 1)
                        along_x += product * by_plane * by_line * over_column
                        along_y += product * by_plane * over_line * by_column
                        along_z += product * over_plane * by_line * by_column
    size = 3 if volume else 2
    grid_target += image * points * size + row * size
    kind = grid_target.dtype.element_ty
    tl.store(grid_target, (along_x * x_slope).to(kind), mask=known)
    tl.store(grid_target + 1, (along_y * y_slope).to(kind), mask=known)
    if volume:
        tl.store(grid_target + 2, (along_z * z_slope).to(kind), mask=known)
