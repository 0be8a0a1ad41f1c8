"""Winograd convolution, 3x3 with stride 1: F(2x2, 3x3) and F(4x4, 3x3), after Lavin and Gray, 2015 (arXiv 1509.09308).

Tiles of 4x4 or 6x6 pixels give 2x2 or 4x4 results from 16 or 36 products per pair of channels, 2.25 or 4 times fewer
than the convolution has. The transforms follow Toom and Cook: F(2) from the points 0, 1, -1 and infinity, F(4) from 0,
11/16, -11/16, 3/2, -3/2 and infinity, of which every constant is exact in float32. Weights are transformed in float64
and rounded once; they take 1.8 or 4 times the memory.

Root mean square error against float64, over that of a direct convolution in float32 (96 channels, normal inputs after
relu, products summed one after the other): F(2) 0.7, F(4) 2.1; with the usual points 0, 1, -1, 2, -2 it would be 4.5,
with 0, 1, -1, 1/2, -2 it would be 3.0. The greatest error: F(2) 0.4, F(4) 1.7, against 7.7 and 3.2 times. Points from
5/8 to 11/16 and 23/16 to 25/16 differ by less than the noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch

from nhwc.inference.native import Step
from nhwc.inference.operations import Convolution
from nhwc.inference.steps.packing import MOST_VECTORS, Panels, lanes, most_rows, packed, up
from nhwc.inference.steps.parameters import convolution, is_in_rows, pack_bias
from nhwc.inference.steps.registry import Candidate, Request, algorithm

#: The points of each size of tile, as winograd.h has them, and infinity.
POINTS = {2: (0.0, 1.0, -1.0), 4: (0.0, 0.6875, -0.6875, 1.5, -1.5)}
#: Channels are filled up, and points lie apart, by so many floats, conv_winograd.cpp's APART.
_APART = 16
#: What a task's tiles may fill of the second-level cache, weights being read past them.
_BLOCK_BYTES = 448 * 1024
#: Every block reads all weights: larger ones are left to the phases, which read them once, smaller ones to blocks.
_BLOCKS_UP_TO, _PHASES_FROM = 6 * 1024 * 1024, 2 * 1024 * 1024
#: Too few for blocks that fill the registers and keep every thread busy.
_FEW_TILES = 24
#: Scratch of the phases at most.
_PHASES_BYTES = 128 * 1024 * 1024
#: Products have few rows and columns below.
_LEAST_CHANNELS = 8


@dataclass(frozen=True)
class Schedule:
    """tile: 2 or 4. tiles: of a block, or of the batch. chunk: panels that are multiplied before they go back."""

    tile: int
    is_phases: bool
    tiles: int
    vectors: int
    depth: int
    chunk: int

    @property
    def points(self) -> int:
        return (self.tile + 2) ** 2

    @property
    def label(self) -> str:
        name = "phases" if self.is_phases else f"blocks of {self.tiles}"
        return f"winograd F({self.tile}) {name} vectors={self.vectors} chunk={self.chunk}"


def weight_matrix(tile: int) -> torch.Tensor:
    """G of (tile + 2, 3), float64: the powers of each point over the product of its distances to the others."""
    rows = []
    for point in POINTS[tile]:
        distance = 1.0
        for other in POINTS[tile]:
            distance *= point - other if other != point else 1.0
        # F(2) takes its first row of B^T with the other sign, as winograd.h does
        sign = -1.0 if tile == 2 and point == 0 else 1.0
        rows.append([sign * point**power / distance for power in range(3)])
    return torch.tensor([*rows, [0.0, 0.0, 1.0]], dtype=torch.float64, device="cpu")


def transformed(weight: torch.Tensor, tile: int, groups: int) -> torch.Tensor:
    """(K, C / groups, 3, 3) as (points * groups, C / groups, K / groups), by G w G^T in float64, rounded to float32."""
    matrix = weight_matrix(tile)
    points = torch.einsum("ia,kcab,jb->ijkc", matrix, weight.double(), matrix).flatten(0, 1)
    count, outputs, channels = points.shape
    by_group = points.reshape(count, groups, outputs // groups, channels).transpose(2, 3)
    return by_group.reshape(count * groups, channels, outputs // groups).float()


@algorithm(Convolution, preferred=True)
def winograd(request: Request) -> Iterator[Candidate]:
    """Candidates for 3x3, stride 1, without dilation, of images; groups of at least 8 channels."""
    operation = request.operation
    assert isinstance(operation, Convolution)
    if request.exact or not _is_suitable(request, operation):
        return
    for schedule in dict.fromkeys(_schedules(request, operation)):
        yield Candidate(schedule.label, partial(_build, request, operation, schedule))


def _is_suitable(request: Request, operation: Convolution) -> bool:
    weight = operation.weight
    return (
        is_in_rows(request)
        and not operation.transposed
        and tuple(weight.shape[2:]) == (3, 3)
        and operation.stride == operation.dilation == (1, 1)
        and min(weight.shape[1], weight.shape[0] // operation.groups) >= _LEAST_CHANNELS
    )


def _tiles(request: Request, tile: int) -> int:
    batch, _, height, width = request.output.shape
    return batch * -(-height // tile) * -(-width // tile)


def _schedules(request: Request, operation: Convolution) -> Iterator[Schedule]:
    """Likeliest first: blocks while the cache has room for the weights too, phases beyond, both near the limit."""
    columns, depth = operation.weight.shape[0] // operation.groups, min(256, operation.weight.shape[1])
    for tile in (4, 2) if min(request.output.shape[2:]) > 2 else (2,):
        tiles = max(1, _tiles(request, tile))
        weight_bytes = operation.weight.numel() // 9 * (tile + 2) ** 2 * 4
        for vectors in (MOST_VECTORS, MOST_VECTORS - 1):
            panels = Panels(columns, vectors)
            wide = panels.parts[0][1] // lanes()
            if weight_bytes <= _BLOCKS_UP_TO:
                for chunk in (panels.count,) if operation.groups > 1 else dict.fromkeys((1, panels.count)):
                    block = _block(request, operation, tile, tiles, wide, chunk)
                    yield Schedule(tile, False, block, wide, depth, chunk)
            phases = Schedule(tile, True, tiles, wide, depth, panels.count)
            is_small = _floats(request, operation, phases) * 4 <= _PHASES_BYTES
            if is_small and (weight_bytes >= _PHASES_FROM or tiles < _FEW_TILES * request.threads):
                yield phases


def _block(request: Request, operation: Convolution, tile: int, tiles: int, vectors: int, chunk: int) -> int:
    """As many tiles as the cache holds, in whole tiles of rows, and as many blocks as keep every thread busy."""
    one = Schedule(tile, False, 1, vectors, 1, chunk)
    most = max(1, _BLOCK_BYTES // (_floats(request, operation, one) * 4))
    blocks = up(-(-tiles // most), request.threads)
    even = -(-tiles // blocks)
    tall = most_rows(vectors)
    return up(even, tall) if even > tall else even


def _floats(request: Request, operation: Convolution, schedule: Schedule) -> int:
    """Floats of one task's points, before and after the products."""
    columns = operation.weight.shape[0]
    if operation.groups == 1:
        columns = min(columns, schedule.chunk * schedule.vectors * lanes())
    channels = up(request.inputs[0].shape[1], _APART) + up(columns, _APART)
    return up(schedule.points * (schedule.tiles * channels + 2 * _APART), _APART)


def _build(request: Request, operation: Convolution, schedule: Schedule) -> Step:
    weight = packed(transformed(operation.weight.detach(), schedule.tile, operation.groups), schedule.vectors)
    bias = pack_bias(operation.bias, request.output.shape[1])
    choice = (
        schedule.tile,
        int(schedule.is_phases),
        schedule.tiles,
        schedule.vectors,
        schedule.depth,
        schedule.chunk,
    )
    scratch = _floats(request, operation, schedule) * 4 * (1 if schedule.is_phases else request.threads)
    parameters, kept = convolution(request, operation, weight, bias, choice)
    return Step("conv_winograd", parameters, schedule.label, scratch, kept)
