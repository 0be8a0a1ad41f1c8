"""Direct convolution: a matrix product over rows of channels as they lie, and the stem's over rows copied together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial

import torch

from nhwc.inference.native import Step
from nhwc.inference.operations import Convolution
from nhwc.inference.steps.packing import lanes, packed, up
from nhwc.inference.steps.products import (
    Blocking,
    Extent,
    Window,
    adds_alike,
    are_rows,
    blockings,
    product_step,
    table_bytes,
)
from nhwc.inference.steps.registry import Candidate, Request, algorithm

#: A stem has at most so many channels, which are copied to lie together.
_STEM_CHANNELS = 4


@algorithm(Convolution)
def direct(request: Request) -> Iterator[Candidate]:
    """conv_direct in a few tiles and blockings: any kernel, stride, dilation, padding and groups."""
    conv = request.operation
    assert isinstance(conv, Convolution)
    if conv.transposed or not are_rows(request.inputs[0], request.output, request.addend) or not adds_alike(request):
        return
    if conv.groups == request.inputs[0].shape[1] > 1 and conv.weight.shape[0] == conv.groups:
        return  # a product of one channel: the depthwise kernels are 3 to 25 times as fast
    merged = _merged_groups(conv)
    weights = cache(partial(_packed, merged, request.inputs[0].shape[1]))
    for blocking in blockings(_extent(request, merged), request.threads):
        yield Candidate(f"direct {blocking.label}", partial(_build_direct, request, merged, blocking, weights))


@algorithm(Convolution)
def stem(request: Request) -> Iterator[Candidate]:
    """conv_stem for up to four channels, in any strides; no groups, no dilation of the width."""
    conv = request.operation
    assert isinstance(conv, Convolution)
    few = request.inputs[0].shape[1] <= _STEM_CHANNELS and conv.groups == 1 and conv.dilation[-1] == 1
    if conv.transposed or not few or not are_rows(request.output, request.addend) or not adds_alike(request):
        return
    width = max(1, request.output.shape[-1])
    shapes = {each.vectors: each for each in blockings(_extent(request, conv), 1)}
    weights = cache(partial(_packed, conv, request.inputs[0].shape[1]))
    for blocking in list(shapes.values())[:2]:
        for lines in dict.fromkeys((max(1, 192 // width), max(1, 448 // width))):
            cut = replace(blocking, rows=lines * width)
            label = f"stem {cut.tall}x{cut.vectors}, {lines} lines"
            yield Candidate(label, partial(_build_stem, request, conv, cut, lines, label, weights))


def _extent(request: Request, conv: Convolution) -> Extent:
    output = request.output.shape
    return Extent(
        pixels=output[0] * math.prod(output[2:]),
        columns=conv.weight.shape[0] // conv.groups,
        depth=math.prod(conv.weight.shape[1:]),
        groups=conv.groups,
    )


def matrices(weight: torch.Tensor, groups: int) -> torch.Tensor:
    """(K, C / groups, *kernel) as (groups, taps, channels, columns), a view where the weight's strides allow it."""
    outputs, channels = weight.shape[:2]
    parts = weight.detach().float().reshape(groups, outputs // groups, channels, -1)
    return parts.permute(0, 3, 2, 1)


def _merged_groups(conv: Convolution) -> Convolution:
    """Groups narrower than a vector, as many to one as fill it: their weights become blocks on a diagonal.

    It costs no more multiplications, since the rest of the vector would be empty, and saves the edges.
    """
    columns, channels = conv.weight.shape[0] // conv.groups, conv.weight.shape[1]
    together = max((m for m in range(1, lanes() // columns + 1) if conv.groups % m == 0), default=1)
    if together == 1:
        return conv
    kernel, groups = conv.weight.shape[2:], conv.groups // together
    parts = conv.weight.detach().reshape(groups, together, columns, channels, *kernel)
    merged = parts.new_zeros(groups, together, columns, together, channels, *kernel)
    for i in range(together):
        merged[:, i, :, i] = parts[:, i]
    weight = merged.reshape(groups * together * columns, together * channels, *kernel)
    return Convolution(weight, conv.bias, conv.stride, conv.padding, conv.dilation, groups)


#: Packed weights by the vectors of a panel: candidates that differ in blocking alone share them.
Weights = Callable[[int], torch.Tensor]


def _packed(conv: Convolution, zeros: int, vectors: int) -> torch.Tensor:
    return packed(matrices(conv.weight, conv.groups), vectors, zeros)


def _build_direct(request: Request, conv: Convolution, blocking: Blocking, weights: Weights) -> Step:
    window = Window.of(conv)
    scratch = request.threads * table_bytes(window.taps, blocking.rows)
    label, weight = f"direct {blocking.label}", weights(blocking.vectors)
    return product_step("conv_direct", label, request, weight, conv.bias, window, blocking, scratch, groups=conv.groups)


def _build_stem(
    request: Request, conv: Convolution, blocking: Blocking, lines: int, label: str, weights: Weights
) -> Step:
    window = Window.of(conv)
    channels, (depth, height, width) = request.inputs[0].shape[1], window.kernel
    rows = (lines - 1) * window.stride[1] + (height - 1) * window.dilation[1] + 1
    places = (request.output.shape[-1] - 1) * window.stride[2] + width
    copied = up(depth * rows * places * channels * 4, 64)
    scratch = request.threads * (table_bytes(depth * height, blocking.rows) + copied)
    weight = weights(blocking.vectors)
    return product_step("conv_stem", label, request, weight, conv.bias, window, blocking, scratch, own=(lines,))
