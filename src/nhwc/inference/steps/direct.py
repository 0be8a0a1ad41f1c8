"""Direct convolution: a matrix product over rows of channels as they lie."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch

from nhwc.inference.native import NOTHING, Conv, Epilogue, Placed, Ref, Rows, Step
from nhwc.inference.operations import Convolution
from nhwc.inference.steps.packing import MOST_VECTORS, Panels, lanes, most_rows, packed, padded_bias, up
from nhwc.inference.steps.registry import Candidate, Request, algorithm


@dataclass(frozen=True)
class Blocking:
    """vectors: of a panel. tall: rows of a tile. A task is ``rows`` pixels by ``panels`` panels, in passes of ``depth``."""

    vectors: int
    tall: int
    rows: int
    panels: int
    depth: int

    @property
    def label(self) -> str:
        return f"{self.tall}x{self.vectors} rows{self.rows} panels{self.panels} depth{self.depth}"


def are_rows(placed: Placed) -> bool:
    """Whether the channels of each pixel lie together; the stride of a dimension of size 1 does not matter."""
    return placed.shape[1] == 1 or placed.strides[1] == 1


def epilogue_of(request: Request, keep: list[torch.Tensor]) -> Epilogue:
    """The request's epilogue; its slope is kept alive through ``keep``."""
    fused = request.fused
    slope = None
    if fused.slope is not None:
        keep.append(fused.slope.detach().float().contiguous())
        slope = Placed.constant(keep[-1])
    return Epilogue.of(fused.activation, fused.lo, fused.hi, slope, request.addend, fused.addend_last)


def spatial(numbers: tuple[int, ...], missing: int) -> tuple[int, int, int]:
    """(depth, height, width), with ``missing`` where there are fewer."""
    depth, height, width = (*[missing] * (3 - len(numbers)), *numbers)
    return depth, height, width


@algorithm(Convolution)
def direct(request: Request) -> Iterator[Candidate]:
    """conv_direct, in a few tiles and blockings."""
    conv = request.operation
    assert isinstance(conv, Convolution)
    tensors = (request.inputs[0], request.output, *([request.addend] if request.addend else []))
    if conv.transposed or not all(map(are_rows, tensors)):
        return
    for blocking in blockings(conv, request.output.shape, request.threads):
        yield Candidate(f"direct {blocking.label}", partial(build, request, conv, blocking))


def blockings(conv: Convolution, output: tuple[int, ...], threads: int) -> Iterator[Blocking]:
    """The candidates, likeliest best first."""
    depth_of_all = math.prod(conv.weight.shape[1:])
    pixels = output[0] * math.prod(output[2:])
    seen = set()
    for vectors, depth, rows in [(4, 256, 96), (3, 256, 96), (4, 128, 96), (3, 128, 96), (2, 256, 96), (4, 512, 48)]:
        panels = Panels(conv.weight.shape[0] // conv.groups, vectors)
        wide = panels.parts[0][1] // lanes()
        blocking = Blocking(
            vectors=wide,
            tall=most_rows(wide),
            rows=min(rows, pixels) or 1,
            panels=panels.count * conv.groups,
            depth=min(depth, depth_of_all),
        )
        if blocking not in seen:
            seen.add(blocking)
            yield blocking


def build(request: Request, conv: Convolution, blocking: Blocking) -> Step:
    """Pack the weights for a blocking."""
    weight = conv.weight.detach().float()
    taps = math.prod(weight.shape[2:])
    channels, columns = weight.shape[1], weight.shape[0] // conv.groups
    matrices = weight.unflatten(0, (conv.groups, columns)).flatten(3).permute(0, 3, 2, 1)
    constants = [
        packed(matrices.reshape(conv.groups, taps * channels, columns), blocking.vectors, request.inputs[0].shape[1])
    ]
    zeros = constants[0].numel() - request.inputs[0].shape[1]
    bias = Ref(*NOTHING)
    if (padded := padded_bias(conv.bias, weight.shape[0])) is not None:
        constants.append(padded)
        bias = Placed.constant(padded).ref
    parameters = Conv(
        x=Rows.of(request.inputs[0]),
        y=Rows.of(request.output),
        epilogue=epilogue_of(request, constants),
        weight=Placed.constant(constants[0]).ref,
        bias=bias,
        groups=conv.groups,
        kernel=spatial(tuple(weight.shape[2:]), 1),
        stride=spatial(conv.stride, 1),
        dilation=spatial(conv.dilation, 1),
        padding=spatial(conv.padding, 0),
        choice=(blocking.vectors, blocking.tall, blocking.rows, blocking.panels, blocking.depth, zeros),
    )
    scratch = request.threads * up((taps + 2) * blocking.rows, 8) * 8
    return Step("conv_direct", parameters, f"direct {blocking.label}", scratch, tuple(constants))
