"""What the steps by matrix products share: how the work is cut, and the parameters of conv_blocks.h."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from nhwc.inference.native import NOTHING, Conv, Epilogue, Placed, Ref, Rows, Step
from nhwc.inference.operations import Convolution
from nhwc.inference.steps.packing import Panels, lanes, most_rows, padded_bias, registers, up
from nhwc.inference.steps.registry import Request


@dataclass(frozen=True)
class Blocking:
    """How a product is cut.

    vectors: of a panel. tall: rows of a tile. A task is ``rows`` pixels by ``panels`` panels, in passes of ``depth``.
    """

    vectors: int
    tall: int
    rows: int
    panels: int
    depth: int

    @property
    def label(self) -> str:
        return f"{self.tall}x{self.vectors}, {self.rows} rows, {self.panels} panels, depth {self.depth}"


@dataclass(frozen=True)
class Extent:
    """The product behind an operation: pixels of a whole result, columns of a group, depth: taps times channels."""

    pixels: int
    columns: int
    depth: int
    groups: int = 1


#: (vectors, depth, rows) of the candidates, likeliest best first; with 16 registers, panels have a vector less. Rows
#: beside each other share what is fetched of the weights; panels deeper than 512 rows leave the cache before the next
#: rows use them.
_SHAPES = ((4, 512, 96), (4, 512, 192), (4, 256, 96), (3, 512, 96), (2, 512, 96), (4, 256, 192))
#: Tasks for each thread, where there are enough rows and panels: what is left at the end is shared out by them.
_TASKS = 4


def blockings(extent: Extent, threads: int) -> Iterator[Blocking]:
    """A few ways to cut it, likeliest best first."""
    seen = set()
    for vectors, depth, rows in _SHAPES:
        panels = Panels(extent.columns, vectors if registers() == 32 else vectors - 1)
        wide = panels.parts[0][1] // lanes()
        units = panels.count * extent.groups
        row_blocks = max(1, -(-extent.pixels // rows))
        wanted = 1 if threads == 1 else min(units, -(-_TASKS * threads // row_blocks))
        blocking = Blocking(
            vectors=wide,
            tall=most_rows(wide),
            rows=max(1, -(-extent.pixels // row_blocks)),
            panels=-(-units // wanted),
            depth=min(depth, extent.depth),
        )
        if blocking not in seen:
            seen.add(blocking)
            yield blocking


def are_rows(*tensors: Placed | None) -> bool:
    """Whether the channels of each pixel lie together; the stride of a single channel does not matter."""
    return all(each is None or each.shape[1] == 1 or each.strides[1] == 1 for each in tensors)


def adds_alike(request: Request) -> bool:
    """Whether what the epilogue adds has the output's shape, or there is nothing to add."""
    return request.addend is None or request.addend.shape == request.output.shape


def spatial(numbers: Sequence[int], missing: int) -> tuple[int, int, int]:
    """(depth, height, width), with ``missing`` where there are fewer."""
    depth, height, width = (*[missing] * (3 - len(numbers)), *numbers)
    return depth, height, width


@dataclass(frozen=True)
class Window:
    """Three numbers each: depth, height, width."""

    kernel: tuple[int, int, int] = (1, 1, 1)
    stride: tuple[int, int, int] = (1, 1, 1)
    dilation: tuple[int, int, int] = (1, 1, 1)
    padding: tuple[int, int, int] = (0, 0, 0)

    @classmethod
    def of(cls, conv: Convolution) -> Window:
        """The window of a convolution over images or volumes."""
        return cls(
            spatial(conv.weight.shape[2:], 1),
            spatial(conv.stride, 1),
            spatial(conv.dilation, 1),
            spatial(conv.padding, 0),
        )

    @property
    def taps(self) -> int:
        depth, height, width = self.kernel
        return depth * height * width


def table_bytes(taps: int, rows: int) -> int:
    """Scratch of one slot, as Tables has it."""
    return up((taps + 2) * rows, 8) * 8


def product_step(
    function: str,
    label: str,
    request: Request,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    window: Window,
    blocking: Blocking,
    scratch_bytes: int,
    *,
    groups: int = 1,
    own: tuple[int, ...] = (),
    rows_of: Callable[[Placed | None], Rows] = Rows.of,
) -> Step:
    """The step for packed weights, whose last floats are the zeros that padding points at, one per input channel."""
    x, y, fused = rows_of(request.inputs[0]), rows_of(request.output), request.fused
    constants = [weight]
    places = {}
    slope = None if fused.slope is None else fused.slope.detach().float().expand(y.c).contiguous()
    for name, tensor in (("bias", padded_bias(bias)), ("slope", slope)):
        if tensor is not None:
            constants.append(tensor)
            places[name] = Placed.constant(tensor)
    epilogue = Epilogue.of(fused.activation, fused.lo, fused.hi, places.get("slope"), None, fused.addend_last)
    epilogue.addend = rows_of(request.addend)
    parameters = Conv(
        x=x,
        y=y,
        epilogue=epilogue,
        weight=Placed.constant(weight).ref,
        bias=places["bias"].ref if "bias" in places else Ref(*NOTHING),
        groups=groups,
        kernel=window.kernel,
        stride=window.stride,
        dilation=window.dilation,
        padding=window.padding,
        choice=(
            blocking.vectors,
            blocking.tall,
            blocking.rows,
            blocking.panels,
            blocking.depth,
            weight.numel() - x.c,
            *own,
        ),
    )
    return Step(function, parameters, label, scratch_bytes, tuple(constants))
