"""Group norm over channels-last rows, in passes whose sums are added in one order: the same bits in every run.

``sums`` is the type of sums and statistics: float32, float64 for float64.
"""

import triton
import triton.language as tl


@triton.jit
def moments(
    source,
    means,
    squares,
    rows,
    channels,
    chunk_rows,
    chunks,
    sums: tl.constexpr,
    tile_rows: tl.constexpr,
    tile_channels: tl.constexpr,
):
    """Per sample, chunk of rows and channel: the mean, and the sum of squared differences from it.

    Reads source (samples, rows, channels) once; writes means and squares (samples, chunks, channels). The chunk is
    taken tile by tile, each around its own mean, so that a large mean costs no digits. Grid: samples * chunks, then
    blocks of channels.
    """
    place = tl.program_id(0)
    channel = tl.program_id(1) * tile_channels + tl.arange(0, tile_channels)
    first = place % chunks * chunk_rows
    last = tl.minimum(first + chunk_rows, rows)
    source += (place // chunks).to(tl.int64) * rows * channels
    count = tl.zeros((), sums)
    mean = tl.zeros((tile_channels,), sums)
    square = tl.zeros((tile_channels,), sums)
    for start in range(first, last, tile_rows):
        row = start + tl.arange(0, tile_rows)
        inside = (row < last)[:, None] & (channel < channels)[None, :]
        values = tl.load(source + row[:, None] * channels + channel[None, :], mask=inside, other=0.0).to(sums)
        fresh = tl.minimum(last - start, tile_rows).to(sums)
        tile_mean = tl.sum(values, 0) / fresh
        from_mean = tl.where(inside, values - tile_mean[None, :], 0.0)
        total = count + fresh
        apart = tile_mean - mean
        mean += apart * (fresh / total)
        square += tl.sum(from_mean * from_mean, 0) + apart * apart * (count * fresh / total)
        count = total
    target = place.to(tl.int64) * channels + channel
    tl.store(means + target, mean, mask=channel < channels)
    tl.store(squares + target, square, mask=channel < channels)


@triton.jit
def statistics(
    means,
    squares,
    mean,
    deviation,
    rows,
    channels,
    groups,
    chunk_rows,
    chunks,
    eps: tl.constexpr,
    sums: tl.constexpr,
    tile: tl.constexpr,
):
    """Per sample and group: the mean and the reciprocal deviation, from what ``moments`` wrote.

    Reads means twice and squares once; writes mean and deviation (samples, groups). Grid: samples * groups.
    """
    place = tl.program_id(0)
    width = channels // groups
    begin = (place // groups).to(tl.int64) * chunks * channels + place % groups * width
    number = rows * width
    total = tl.zeros((tile,), sums)
    for start in range(0, chunks * width, tile):
        each = start + tl.arange(0, tile)
        chunk = each // width
        held = tl.minimum(rows - chunk * chunk_rows, chunk_rows).to(sums)
        at = begin + chunk * channels + each % width
        inside = each < chunks * width
        total += tl.where(inside, tl.load(means + at, mask=inside, other=0.0) * held, 0.0)
    center = tl.sum(total, 0) / number
    total = tl.zeros((tile,), sums)
    for start in range(0, chunks * width, tile):
        each = start + tl.arange(0, tile)
        chunk = each // width
        held = tl.minimum(rows - chunk * chunk_rows, chunk_rows).to(sums)
        at = begin + chunk * channels + each % width
        inside = each < chunks * width
        apart = tl.load(means + at, mask=inside, other=0.0) - center
        square = tl.load(squares + at, mask=inside, other=0.0)
        total += tl.where(inside, square + apart * apart * held, 0.0)
    variance = tl.sum(total, 0) / number
    tl.store(mean + place, center)
    tl.store(deviation + place, 1.0 / tl.sqrt(variance + eps))


@triton.jit
def normalize(
    source,
    target,
    mean,
    deviation,
    weight,
    bias,
    rows,
    channels,
    groups,
    row_blocks,
    sums: tl.constexpr,
    has_weight: tl.constexpr,
    has_bias: tl.constexpr,
    tile_rows: tl.constexpr,
    tile_channels: tl.constexpr,
):
    """target = (source - mean) * deviation * weight + bias. Reads and writes each element once.

    Grid: samples * row_blocks, then blocks of channels.
    """
    place = tl.program_id(0)
    sample = place // row_blocks
    row = place % row_blocks * tile_rows + tl.arange(0, tile_rows)
    channel = tl.program_id(1) * tile_channels + tl.arange(0, tile_channels)
    known = channel < channels
    group = sample * groups + channel // (channels // groups)
    center = tl.load(mean + group, mask=known, other=0.0)
    scale = tl.load(deviation + group, mask=known, other=0.0)
    if has_weight:
        scale *= tl.load(weight + channel, mask=known, other=0.0).to(sums)
    begin = sample.to(tl.int64) * rows * channels
    at = row[:, None] * channels + channel[None, :]
    inside = (row < rows)[:, None] & known[None, :]
    values = tl.load(source + begin + at, mask=inside, other=0.0).to(sums)
    result = (values - center[None, :]) * scale[None, :]
    if has_bias:
        result += tl.load(bias + channel, mask=known, other=0.0).to(sums)[None, :]
    tl.store(target + begin + at, result.to(target.dtype.element_ty), mask=inside)


@triton.jit
def products(
    grad,
    source,
    mean,
    deviation,
    weighted,
    plain,
    rows,
    channels,
    groups,
    chunk_rows,
    chunks,
    sums: tl.constexpr,
    tile_rows: tl.constexpr,
    tile_channels: tl.constexpr,
):
    """Per sample, chunk of rows and channel: the sums of grad * (source - mean) * deviation, and of grad.

    Reads grad and source once; writes weighted and plain (samples, chunks, channels). Grid: samples * chunks, then
    blocks of channels.
    """
    place = tl.program_id(0)
    sample = place // chunks
    channel = tl.program_id(1) * tile_channels + tl.arange(0, tile_channels)
    known = channel < channels
    group = sample * groups + channel // (channels // groups)
    center = tl.load(mean + group, mask=known, other=0.0)
    scale = tl.load(deviation + group, mask=known, other=0.0)
    first = place % chunks * chunk_rows
    last = tl.minimum(first + chunk_rows, rows)
    begin = sample.to(tl.int64) * rows * channels
    grad += begin
    source += begin
    products_sum = tl.zeros((tile_channels,), sums)
    plain_sum = tl.zeros((tile_channels,), sums)
    for start in range(first, last, tile_rows):
        row = start + tl.arange(0, tile_rows)
        inside = (row < last)[:, None] & known[None, :]
        at = row[:, None] * channels + channel[None, :]
        incoming = tl.load(grad + at, mask=inside, other=0.0).to(sums)
        values = tl.load(source + at, mask=inside, other=0.0).to(sums)
        from_mean = tl.where(inside, values - center[None, :], 0.0)
        products_sum += tl.sum(incoming * from_mean, 0)
        plain_sum += tl.sum(incoming, 0)
    target = place.to(tl.int64) * channels + channel
    tl.store(weighted + target, products_sum * scale, mask=known)
    tl.store(plain + target, plain_sum, mask=known)


@triton.jit
def group_means(
    weighted,
    plain,
    weight,
    weighted_mean,
    plain_mean,
    rows,
    channels,
    groups,
    chunks,
    sums: tl.constexpr,
    has_weight: tl.constexpr,
    tile: tl.constexpr,
):
    """Per sample and group: the means over its elements of what ``products`` summed, each channel times its weight.

    Reads weighted and plain once; writes (samples, groups) twice. Grid: samples * groups.
    """
    place = tl.program_id(0)
    width = channels // groups
    first = place % groups * width
    begin = (place // groups).to(tl.int64) * chunks * channels + first
    number = rows * width
    products_sum = tl.zeros((tile,), sums)
    plain_sum = tl.zeros((tile,), sums)
    for start in range(0, chunks * width, tile):
        each = start + tl.arange(0, tile)
        inside = each < chunks * width
        at = begin + each // width * channels + each % width
        factor = tl.full((tile,), 1.0, sums)
        if has_weight:
            factor = tl.load(weight + first + each % width, mask=inside, other=0.0).to(sums)
        products_sum += factor * tl.load(weighted + at, mask=inside, other=0.0)
        plain_sum += factor * tl.load(plain + at, mask=inside, other=0.0)
    tl.store(weighted_mean + place, tl.sum(products_sum, 0) / number)
    tl.store(plain_mean + place, tl.sum(plain_sum, 0) / number)


@triton.jit
def normalize_backward(
    grad,
    source,
    target,
    mean,
    deviation,
    weight,
    weighted_mean,
    plain_mean,
    rows,
    channels,
    groups,
    row_blocks,
    sums: tl.constexpr,
    has_weight: tl.constexpr,
    tile_rows: tl.constexpr,
    tile_channels: tl.constexpr,
):
    """target = deviation * (grad * weight - plain_mean - normalized * weighted_mean).

    Reads grad and source and writes target, each element once. Grid: samples * row_blocks, then blocks of channels.
    """
    place = tl.program_id(0)
    sample = place // row_blocks
    row = place % row_blocks * tile_rows + tl.arange(0, tile_rows)
    channel = tl.program_id(1) * tile_channels + tl.arange(0, tile_channels)
    known = channel < channels
    group = sample * groups + channel // (channels // groups)
    center = tl.load(mean + group, mask=known, other=0.0)
    scale = tl.load(deviation + group, mask=known, other=0.0)
    along = tl.load(weighted_mean + group, mask=known, other=0.0) * scale
    level = tl.load(plain_mean + group, mask=known, other=0.0)
    begin = sample.to(tl.int64) * rows * channels
    at = row[:, None] * channels + channel[None, :]
    inside = (row < rows)[:, None] & known[None, :]
    incoming = tl.load(grad + begin + at, mask=inside, other=0.0).to(sums)
    values = tl.load(source + begin + at, mask=inside, other=0.0).to(sums)
    if has_weight:
        incoming *= tl.load(weight + channel, mask=known, other=0.0).to(sums)[None, :]
    result = (incoming - level[None, :] - (values - center[None, :]) * along[None, :]) * scale[None, :]
    tl.store(target + begin + at, result.to(target.dtype.element_ty), mask=inside)


@triton.jit
def over_samples(
    parts,
    target,
    count,
    channels,
    sums: tl.constexpr,
    tile_rows: tl.constexpr,
    tile_channels: tl.constexpr,
):
    """target (channels) = the sum of parts (count, channels), which it reads once. Grid: blocks of channels."""
    channel = tl.program_id(0) * tile_channels + tl.arange(0, tile_channels)
    known = channel < channels
    total = tl.zeros((tile_channels,), sums)
    for start in range(0, count, tile_rows):
        row = start + tl.arange(0, tile_rows)
        inside = (row < count)[:, None] & known[None, :]
        at = row.to(tl.int64)[:, None] * channels + channel[None, :]
        total += tl.sum(tl.load(parts + at, mask=inside, other=0.0), 0)
    tl.store(target + channel, total.to(target.dtype.element_ty), mask=known)
