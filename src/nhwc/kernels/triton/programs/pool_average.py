"""Average pooling of channels-last volumes; an image is a volume of depth 1.

``sums`` is the type that a window is added in. Both directions gather, so that no sum depends on timing.
"""

import triton
import triton.language as tl


@triton.jit
def _window(place, size, count, kernel, step, pad, adaptive: tl.constexpr, padded: tl.constexpr):
    """Begin and end of the windows at ``place`` along one dimension, and what each divides by."""
    if adaptive:
        begin = place * size // count
        end = ((place + 1) * size + count - 1) // count
        divisor = end - begin
    else:
        begin = place * step - pad
        end = tl.minimum(begin + kernel, size + pad)
        divisor = end - begin
        begin = tl.maximum(begin, 0)
        end = tl.minimum(end, size)
        if not padded:
            divisor = end - begin
    return begin, end, divisor


@triton.jit
def _covering(place, size, count, kernel, step, pad, adaptive: tl.constexpr):
    """First and last (exclusive) of the windows along one dimension that the inputs at ``place`` belong to."""
    if adaptive:
        first = place * count // size
        last = ((place + 1) * count + size - 1) // size
    else:
        first = tl.where(place + pad < kernel, 0, (place + pad - kernel) // step + 1)
        last = tl.minimum((place + pad) // step + 1, count)
    return first, last


@triton.jit
def average(
    source,
    target,
    channels,
    depth,
    height,
    width,
    out_depth,
    out_height,
    out_width,
    kernel_depth,
    kernel_height,
    kernel_width,
    step_depth,
    step_height,
    step_width,
    pad_depth,
    pad_height,
    pad_width,
    reach_depth,
    reach_height,
    reach_width,
    divided_by,
    row_blocks,
    adaptive: tl.constexpr,
    padded: tl.constexpr,
    overridden: tl.constexpr,
    sums: tl.constexpr,
    tile_rows: tl.constexpr,
    tile_channels: tl.constexpr,
):
    """target (samples, out pixels, channels): the mean of each window of source (samples, pixels, channels).

    reach: the most inputs of a window. Reads each input as often as windows cover it, mostly from the cache, and writes
    each output once. Grid: samples * row_blocks, then blocks of channels.
    """
    place = tl.program_id(0)
    row = place % row_blocks * tile_rows + tl.arange(0, tile_rows)
    channel = tl.program_id(1) * tile_channels + tl.arange(0, tile_channels)
    sample = (place // row_blocks).to(tl.int64)
    out_pixels = out_depth * out_height * out_width
    known = row < out_pixels
    z0, z1, by_depth = _window(
        row // (out_height * out_width), depth, out_depth, kernel_depth, step_depth, pad_depth, adaptive, padded
    )
    y0, y1, by_height = _window(
        row // out_width % out_height, height, out_height, kernel_height, step_height, pad_height, adaptive, padded
    )
    x0, x1, by_width = _window(row % out_width, width, out_width, kernel_width, step_width, pad_width, adaptive, padded)
    source += sample * depth * height * width * channels
    total = tl.zeros((tile_rows, tile_channels), sums)
    for z in range(reach_depth):
        for y in range(reach_height):
            for x in range(reach_width):
                inside = known & (z0 + z < z1) & (y0 + y < y1) & (x0 + x < x1)
                pixel = ((z0 + z) * height + y0 + y) * width + x0 + x
                mask = inside[:, None] & (channel < channels)[None, :]
                total += tl.load(source + pixel[:, None] * channels + channel[None, :], mask=mask, other=0.0).to(sums)
    if overridden:
        total /= divided_by
    else:
        total /= tl.where(known, by_depth * by_height * by_width, 1)[:, None]
    target += sample * out_pixels * channels
    mask = known[:, None] & (channel < channels)[None, :]
    tl.store(target + row[:, None] * channels + channel[None, :], total.to(target.dtype.element_ty), mask=mask)


@triton.jit
def average_backward(
    grad,
    target,
    channels,
    depth,
    height,
    width,
    out_depth,
    out_height,
    out_width,
    kernel_depth,
    kernel_height,
    kernel_width,
    step_depth,
    step_height,
    step_width,
    pad_depth,
    pad_height,
    pad_width,
    reach_depth,
    reach_height,
    reach_width,
    divided_by,
    row_blocks,
    adaptive: tl.constexpr,
    padded: tl.constexpr,
    overridden: tl.constexpr,
    sums: tl.constexpr,
    tile_rows: tl.constexpr,
    tile_channels: tl.constexpr,
):
    """target (samples, pixels, channels): the sum of the gradients (samples, out pixels, channels) of the windows that
    each input belongs to, each over its divisor.

    reach: the most windows that an input belongs to. Reads each gradient as often as inputs belong to it, mostly from
    the cache, and writes each input's once. Grid: samples * row_blocks, then blocks of channels.
    """
    place = tl.program_id(0)
    row = place % row_blocks * tile_rows + tl.arange(0, tile_rows)
    channel = tl.program_id(1) * tile_channels + tl.arange(0, tile_channels)
    sample = (place // row_blocks).to(tl.int64)
    pixels = depth * height * width
    known = row < pixels
    z0, z1 = _covering(row // (height * width), depth, out_depth, kernel_depth, step_depth, pad_depth, adaptive)
    y0, y1 = _covering(row // width % height, height, out_height, kernel_height, step_height, pad_height, adaptive)
    x0, x1 = _covering(row % width, width, out_width, kernel_width, step_width, pad_width, adaptive)
    grad += sample * out_depth * out_height * out_width * channels
    total = tl.zeros((tile_rows, tile_channels), sums)
    for z in range(reach_depth):
        _, _, by_depth = _window(z0 + z, depth, out_depth, kernel_depth, step_depth, pad_depth, adaptive, padded)
        for y in range(reach_height):
            _, _, by_height = _window(
                y0 + y, height, out_height, kernel_height, step_height, pad_height, adaptive, padded
            )
            for x in range(reach_width):
                _, _, by_width = _window(
                    x0 + x, width, out_width, kernel_width, step_width, pad_width, adaptive, padded
                )
                inside = known & (z0 + z < z1) & (y0 + y < y1) & (x0 + x < x1)
                pixel = ((z0 + z) * out_height + y0 + y) * out_width + x0 + x
                mask = inside[:, None] & (channel < channels)[None, :]
                incoming = tl.load(grad + pixel[:, None] * channels + channel[None, :], mask=mask, other=0.0).to(sums)
                if overridden:
                    total += incoming / divided_by
                else:
                    total += incoming / tl.where(inside, by_depth * by_height * by_width, 1)[:, None]
    target += sample * pixels * channels
    mask = known[:, None] & (channel < channels)[None, :]
    tl.store(target + row[:, None] * channels + channel[None, :], total.to(target.dtype.element_ty), mask=mask)
