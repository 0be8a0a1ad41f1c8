"""Grouped convolution with groups that are a part of a vector, each lane of which multiplies throughout."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import torch
import torch.nn.functional as functional

from nhwc.inference.native import Step
from nhwc.inference.operations import Convolution
from nhwc.inference.steps.packing import lanes
from nhwc.inference.steps.products import Blocking, Window, adds_alike, are_rows, product_step, table_bytes
from nhwc.inference.steps.registry import Candidate, Request, algorithm

_SIZES = (2, 4, 8, 16)
#: Pixels of a task.
_ROWS = (96, 48)


@algorithm(Convolution)
def grouped(request: Request) -> Iterator[Candidate]:
    """conv_grouped for groups of 2, 4, 8 or 16 channels, no more than a vector has lanes, with as many outputs."""
    conv = request.operation
    assert isinstance(conv, Convolution)
    size = conv.weight.shape[1]
    fits = size in _SIZES and size <= lanes() and conv.weight.shape[0] == conv.groups * size
    if conv.transposed or not fits or not are_rows(request.inputs[0], request.output, request.addend):
        return
    if not adds_alike(request):
        return
    pixels = request.output.shape[0] * math.prod(request.output.shape[2:])
    vectors = -(-conv.weight.shape[0] // lanes())
    for rows in dict.fromkeys(min(each, pixels) or 1 for each in _ROWS):
        # few pixels are shared out by vectors as well
        blocks = max(1, -(-pixels // rows))
        panels = max(1, vectors // max(1, -(-4 * request.threads // blocks)))
        label = f"grouped by {size}, {rows} rows, {panels} vectors"
        yield Candidate(label, partial(_build, request, conv, Blocking(1, 1, rows, panels, 1), label))


def rotated(weight: torch.Tensor, groups: int) -> torch.Tensor:
    """(K, size, *kernel) as [vector][tap][rotation][lane]: the lane's weight to the channel r on in its group."""
    size = weight.shape[1]
    taps = weight.detach().float().reshape(groups, size, size, -1)  # group, output, input, tap
    lane = torch.arange(size, device="cpu")
    turns = torch.stack([taps[:, (lane + r) % size, lane] for r in range(size)])  # rotation, group, lane, tap
    padded = functional.pad(turns.flatten(1, 2), (0, 0, 0, -groups * size % lanes()))
    return padded.reshape(size, -1, lanes(), taps.shape[3]).permute(1, 3, 0, 2).contiguous()


def _build(request: Request, conv: Convolution, blocking: Blocking, label: str) -> Step:
    window = Window.of(conv)
    weight = torch.cat([rotated(conv.weight, conv.groups).flatten(), conv.weight.new_zeros(conv.weight.shape[0])])
    scratch = request.threads * table_bytes(window.taps, blocking.rows)
    return product_step(
        "conv_grouped", label, request, weight, conv.bias, window, blocking, scratch, groups=conv.groups
    )
