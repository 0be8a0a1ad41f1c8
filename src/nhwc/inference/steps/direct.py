"""Direct convolution: a matrix product over rows of channels as they lie, and the stem's over rows copied together."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

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
    merged = _merged_groups(conv)
    for blocking in blockings(_extent(request, merged), request.threads):
        yield Candidate(f"direct {blocking.label}", partial(_build_direct, request, merged, blocking))


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
    for blocking in list(shapes.values())[:2]:
        for lines in dict.fromkeys((max(1, 192 // width), max(1, 448 // width))):
            cut = replace(blocking, rows=lines * width)
            label = f"stem {cut.tall}x{cut.vectors}, {lines} lines"
            yield Candidate(label, partial(_build_stem, request, conv, cut, lines, label))


def _extent(request: Request, conv: Convolution) -> Extent:
    output = request.output.shape
    return Extent(
        pixels=output[0] * math.prod(output[2:]),
        columns=conv.weight.shape[0] // conv.groups,
        depth=math.prod(conv.weight.shape[1:]),
        groups=conv.groups,
    )


def matrices(weight: torch.Tensor, groups: int) -> torch.Tensor:
    """(K, C / groups, *kernel) as (groups, taps x channels, columns)."""
    return weight.detach().float().flatten(2).unflatten(0, (groups, -1)).permute(0, 3, 2, 1).flatten(1, 2)


def _merged_groups(conv: Convolution) -> Convolution:
    """Groups narrower than a vector, as many to one as fill it: their weights become blocks on a diagonal.

    It costs no more multiplications, since the rest of the vector would be empty, and saves the edges.
    """
    columns, channels = conv.weight.shape[0] // conv.groups, conv.weight.shape[1]
    together = max((m for m in range(1, lanes() // columns + 1) if conv.groups % m == 0), default=1)
    if together == 1:
        return conv
    parts = conv.weight.detach().unflatten(0, (conv.groups // together, together, columns))
    merged = parts.new_zeros(*parts.shape[:3], together, *parts.shape[3:])
    for i in range(together):
        merged[:, i, :, i] = parts[:, i]
    weight = merged.flatten(0, 2).flatten(1, 2)
    assert weight.shape[1] == channels * together
    return Convolution(weight, conv.bias, conv.stride, conv.padding, conv.dilation, conv.groups // together)


def _build_direct(request: Request, conv: Convolution, blocking: Blocking) -> Step:
    window = Window.of(conv)
    weight = packed(matrices(conv.weight, conv.groups), blocking.vectors, request.inputs[0].shape[1])
    scratch = request.threads * table_bytes(window.taps, blocking.rows)
    label = f"direct {blocking.label}"
    return product_step("conv_direct", label, request, weight, conv.bias, window, blocking, scratch, groups=conv.groups)


def _build_stem(request: Request, conv: Convolution, blocking: Blocking, lines: int, label: str) -> Step:
    window = Window.of(conv)
    channels, (depth, height, width) = request.inputs[0].shape[1], window.kernel
    rows = (lines - 1) * window.stride[1] + (height - 1) * window.dilation[1] + 1
    places = (request.output.shape[-1] - 1) * window.stride[2] + width
    copied = up(depth * rows * places * channels * 4, 64)
    scratch = request.threads * (table_bytes(depth * height, blocking.rows) + copied)
    weight = packed(matrices(conv.weight, 1), blocking.vectors, channels)
    return product_step("conv_stem", label, request, weight, conv.bias, window, blocking, scratch, own=(lines,))
