"""Transposed convolution: a direct convolution for each phase of the stride."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from functools import cache, partial

import torch

from nhwc.inference.native import Step
from nhwc.inference.operations import Convolution
from nhwc.inference.steps.packing import packed
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


@algorithm(Convolution)
def transposed(request: Request) -> Iterator[Candidate]:
    """conv_transposed, for images and volumes, any stride, dilation, padding and groups."""
    conv = request.operation
    assert isinstance(conv, Convolution)
    if not conv.transposed or not are_rows(request.inputs[0], request.output, request.addend):
        return
    if not adds_alike(request):
        return
    output = request.output.shape
    extent = Extent(
        pixels=-(-output[0] * math.prod(output[2:]) // math.prod(conv.stride)),
        columns=conv.weight.shape[1],
        depth=conv.weight.shape[0] // conv.groups,
        groups=conv.groups,
    )
    weights = cache(partial(_packed_phases, conv, Window.of(conv), request.inputs[0].shape[1]))
    for blocking in list(blockings(extent, request.threads))[:4]:
        yield Candidate(f"transposed {blocking.label}", partial(_build, request, conv, blocking, weights))


def phase_taps(kernel: int, stride: int, padding: int, dilation: int) -> list[list[int]]:
    """The taps of each phase of one dimension, ascending: those that reach outputs o with o % stride == phase."""
    return [
        [tap for tap in range(kernel) if (phase + padding - tap * dilation) % stride == 0] for phase in range(stride)
    ]


def _packed_phases(conv: Convolution, window: Window, zeros: int, vectors: int) -> torch.Tensor:
    """Phase after phase, each as the direct convolution of its own taps; then the zeros."""
    weight = conv.weight.detach().float()
    volume = weight.reshape(conv.groups, -1, weight.shape[1], *window.kernel)  # group, channel, column, taps
    phases = [
        phase_taps(*each) for each in zip(window.kernel, window.stride, window.padding, window.dilation, strict=True)
    ]
    parts = []
    for depth, height, width in itertools.product(*phases):
        taps = volume[:, :, :, depth][:, :, :, :, height][..., width].flatten(3)
        parts.append(packed(taps.permute(0, 3, 1, 2), vectors))
    return torch.cat([*parts, torch.zeros(zeros, dtype=torch.float32, device="cpu")])


def _build(request: Request, conv: Convolution, blocking: Blocking, weights: Callable[[int], torch.Tensor]) -> Step:
    window = Window.of(conv)
    return product_step(
        "conv_transposed",
        f"transposed {blocking.label}",
        request,
        weights(blocking.vectors),
        conv.bias,
        window,
        blocking,
        request.threads * table_bytes(window.taps, blocking.rows),
        groups=conv.groups,
    )
