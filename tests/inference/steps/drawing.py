"""Random requests for every operation of the engine, with what torch gives in float64.

Channels are 1 to 67, sizes 1 to 33; tensors are parts of wider ones, in exactly as much memory as their strides take,
whose gaps hold NaN. A new operation needs a function here, marked with ``draws``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from inference.activations import REFERENCES
from torch.nn import functional

from nhwc.inference.native import Activation, Placed
from nhwc.inference.operations import (
    Convolution,
    Fused,
    InvertedResidual,
    Linear,
    Operation,
)
from nhwc.inference.steps.registry import Request

CHANNELS, SIZE = 67, 33


@dataclass(frozen=True, eq=False)
class Drawn:
    """An operation on tensors, and its result in float64. output is uninitialised."""

    operation: Operation
    inputs: tuple[torch.Tensor, ...]
    output: torch.Tensor
    exact: torch.Tensor
    fused: Fused = Fused()  # noqa: RUF009 frozen
    addend: torch.Tensor | None = None

    @property
    def tensors(self) -> list[torch.Tensor]:
        return [*self.inputs, self.output, *([] if self.addend is None else [self.addend])]

    def request(self, place: Callable[[torch.Tensor], Placed], threads: int, exact: bool) -> Request:
        inputs = tuple(place(each) for each in self.inputs)
        addend = None if self.addend is None else place(self.addend)
        return Request(self.operation, inputs, place(self.output), self.fused, addend, threads, exact)


Draw = Callable[[random.Random], Drawn]
DRAWS: dict[type[Any], Draw] = {}


def draws(operation: type[Any]) -> Callable[[Draw], Draw]:
    def register(function: Draw) -> Draw:
        DRAWS[operation] = function
        return function

    return register


def in_memory(values: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """The values in memory of their own that ends with the last of them."""
    extent = sum((size - 1) * stride for size, stride in zip(values.shape, strides, strict=True)) + 1
    return torch.full((extent,), torch.nan).as_strided(values.shape, list(strides)).copy_(values)


def rows(draw: random.Random, values: torch.Tensor) -> torch.Tensor:
    """(N, C, ...) in channels last, often as some channels of a wider tensor."""
    step = values.shape[1] + draw.choice([0, 0, 1, 5, 16])
    strides = [1]
    for size in reversed(values.shape[2:]):
        strides.insert(0, step)
        step *= size
    return in_memory(values, [step, strides[-1], *strides[:-1]])


def tokens(draw: random.Random, values: torch.Tensor) -> torch.Tensor:
    """(..., C) with dense rows, often of a wider tensor."""
    step, strides = values.shape[-1] + draw.choice([0, 0, 1, 5, 16]), [1]
    for size in reversed(values.shape[:-1]):
        strides.insert(0, step)
        step *= size
    return in_memory(values, strides)


def picture(draw: random.Random, spatial: int, least: int = 1, channels: int | None = None) -> torch.Tensor:
    most = SIZE if spatial < 3 else 9
    sizes = [draw.randint(least, max(least, draw.choice([4, 12, most]))) for _ in range(spatial)]
    return torch.randn(draw.randint(1, 3), channels or draw.randint(1, CHANNELS), *sizes)


def plain(draw: random.Random, operation: Operation, x: torch.Tensor, exact: torch.Tensor) -> Drawn:
    return Drawn(operation, (rows(draw, x),), rows(draw, exact.float()), exact)


def with_epilogue(
    draw: random.Random,
    operation: Operation,
    x: torch.Tensor,
    exact: torch.Tensor,
    lay: Callable[[random.Random, torch.Tensor], torch.Tensor],
    channel: int = 1,
) -> Drawn:
    """Any activation, an addend before or behind it, or none."""
    activation = draw.choice([Activation.NONE, Activation.CLAMP, *Activation])
    last, addend, slope = draw.random() < 0.5, None, None
    if draw.random() < 0.4:
        addend = lay(draw, torch.randn(exact.shape))
    if addend is not None and not last:
        exact = exact + addend
    fused = Fused(activation, addend_last=last)
    if activation == Activation.PRELU:
        slope = torch.rand(exact.shape[channel])
        shape = [-1 if each == channel % exact.dim() else 1 for each in range(exact.dim())]
        exact = torch.where(exact > 0, exact, exact * slope.double().view(shape))
        fused = Fused(activation, slope=slope, addend_last=last)
    else:
        of = REFERENCES[activation]
        exact = of.exact(exact)
        fused = Fused(activation, of.lo, of.hi, addend_last=last)
    if addend is not None and last:
        exact = exact + addend
    return Drawn(operation, (x,), lay(draw, exact.float()), exact, fused, addend)


@dataclass(frozen=True)
class Window:
    """A convolution's numbers, one per spatial dimension, and its channels."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[int, ...]
    groups: int
    channels: int
    results: int


def _window(draw: random.Random, kind: str, spatial: int) -> Window:
    """Of any kind; such as some algorithms take only: of 3x3, of few channels, of few or one per group."""
    kernel = draw.choice([(1,) * spatial, (3,) * spatial, tuple(draw.choice([1, 2, 3, 5, 7]) for _ in range(spatial))])
    if spatial == 3:
        kernel = tuple(min(size, 3) for size in kernel)
    stride = draw.choice([(1,) * spatial, tuple(draw.randint(1, 3) for _ in range(spatial))])
    dilation = draw.choice([(1,) * spatial, tuple(draw.randint(1, 2) for _ in range(spatial))])
    padding = tuple(draw.randint(0, size // 2) for size in kernel)
    groups = draw.randint(2, 5) if kind == "grouped" else 1
    channels, results = (groups * draw.randint(1, CHANNELS // groups) for _ in range(2))
    if kind == "narrow":
        size = draw.choice([2, 4, 8, 16])
        groups = draw.randint(1, CHANNELS // size)
        channels = results = groups * size
    if kind == "winograd":
        return Window((3,) * spatial, (1,) * spatial, (1,) * spatial, (1,) * spatial, 1, channels, results)
    if kind == "square":
        kernel, stride = (draw.choice([3, 5, 7]),) * spatial, (draw.choice([1, 2]),) * spatial
        padding = tuple(size // 2 for size in kernel)
        return Window(kernel, stride, (1,) * spatial, padding, channels, channels, channels)
    if kind == "depthwise":
        groups, results = channels, channels * draw.choice([1, 1, 2])
    if kind == "stem":
        channels = draw.randint(1, 4)
    return Window(kernel, stride, dilation, padding, groups, channels, results)


@draws(Convolution)
def convolution(draw: random.Random) -> Drawn:
    spatial = draw.choice([2, 2, 2, 2, 3])
    kind = draw.choice(["full", "full", "winograd", "stem", "depthwise", "square", "grouped", "narrow"])
    of = _window(draw, kind, spatial)
    least = max(d * (k - 1) + 1 - 2 * p for d, k, p in zip(of.dilation, of.kernel, of.padding, strict=True))
    x = picture(draw, spatial, max(1, least), of.channels)
    if draw.random() < 0.2:
        return _transposed(draw, of, x)
    weight = torch.randn(of.results, of.channels // of.groups, *of.kernel)
    bias = torch.randn(of.results) if draw.random() < 0.7 else None
    convolve = functional.conv2d if spatial == 2 else functional.conv3d
    wide = None if bias is None else bias.double()
    exact = convolve(x.double(), weight.double(), wide, of.stride, of.padding, of.dilation, of.groups)
    operation = Convolution(weight, bias, of.stride, of.padding, of.dilation, of.groups)
    placed = in_memory(x, x.stride()) if kind == "stem" else rows(draw, x)
    return with_epilogue(draw, operation, placed, exact, rows)


def _transposed(draw: random.Random, of: Window, x: torch.Tensor) -> Drawn:
    weight = torch.randn(of.channels, of.results // of.groups, *of.kernel)
    bias = torch.randn(of.results) if draw.random() < 0.7 else None
    more = tuple(draw.randint(0, max(s, d) - 1) for s, d in zip(of.stride, of.dilation, strict=True))
    whole = [
        (n - 1) * s + d * (k - 1) + o + 1
        for n, s, d, k, o in zip(x.shape[2:], of.stride, of.dilation, of.kernel, more, strict=True)
    ]
    padding = tuple(min(p, (size - 1) // 2) for p, size in zip(of.padding, whole, strict=True))
    apply = functional.conv_transpose2d if x.dim() == 4 else functional.conv_transpose3d
    wide = None if bias is None else bias.double()
    exact = apply(x.double(), weight.double(), wide, of.stride, padding, more, of.groups, of.dilation)
    operation = Convolution(weight, bias, of.stride, padding, of.dilation, of.groups, True, more)
    return with_epilogue(draw, operation, rows(draw, x), exact, rows)


@draws(Linear)
def linear(draw: random.Random) -> Drawn:
    x = torch.randn(*[draw.randint(1, 9) for _ in range(draw.randint(1, 4))], draw.randint(1, 2 * CHANNELS))
    weight = torch.randn(draw.randint(1, 2 * CHANNELS), x.shape[-1])
    bias = torch.randn(len(weight)) if draw.random() < 0.7 else None
    narrow = draw.choice([None, torch.bfloat16, torch.float16])
    weight = weight if narrow is None else weight.to(narrow).float()  # so that rounding changes nothing
    exact = functional.linear(x.double(), weight.double(), None if bias is None else bias.double())
    return with_epilogue(draw, Linear(weight, bias, narrow), tokens(draw, x), exact, tokens, channel=-1)


@draws(InvertedResidual)
def inverted_residual(draw: random.Random) -> Drawn:
    inputs, deep, results = (draw.randint(1, CHANNELS) for _ in range(3))
    kernel = draw.choice([3, 5, 7])
    ends = draw.choice([(True, True), (True, False), (False, True)])
    steps = [
        Convolution(torch.randn(deep, inputs, 1, 1), torch.randn(deep), (1, 1), (0, 0), (1, 1)) if ends[0] else None,
        Convolution(
            torch.randn(deep, 1, kernel, kernel),
            torch.randn(deep),
            (draw.choice([1, 2]),) * 2,
            (kernel // 2,) * 2,
            (1, 1),
            deep,
        ),
        Convolution(torch.randn(results, deep, 1, 1), torch.randn(results), (1, 1), (0, 0), (1, 1))
        if ends[1]
        else None,
    ]
    there = [each for each in steps if each is not None]
    x = picture(draw, 2, channels=inputs if ends[0] else deep)
    exact, inner = x.double(), []
    for place, conv in enumerate(there):
        assert conv.bias is not None
        exact = functional.conv2d(
            exact, conv.weight.double(), conv.bias.double(), conv.stride, conv.padding, 1, conv.groups
        )
        if place < len(there) - 1:
            activation = draw.choice(list(REFERENCES))
            of = REFERENCES[activation]
            inner.append(Fused(activation, of.lo, of.hi))
            exact = of.exact(exact)
    assert steps[1] is not None
    operation = InvertedResidual(steps[0], steps[1], steps[2], tuple(inner))
    return with_epilogue(draw, operation, rows(draw, x), exact, rows)
