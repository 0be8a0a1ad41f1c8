"""Inverted residuals: expand, depthwise and project by blocks of output rows, so that what lies between stays in cache.

Worth it where the many channels would not fit the second-level cache: 112 and 56 pixels in the usual networks. What the
three cost one after the other must be compared by whoever asks: these candidates are for the fused operation only.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch

from nhwc.inference.native import NOTHING, Conv, Placed, Ref, Rows, Step
from nhwc.inference.operations import Convolution, InvertedResidual
from nhwc.inference.steps.depthwise import pack, registers_of
from nhwc.inference.steps.direct import matrices
from nhwc.inference.steps.packing import packed, up
from nhwc.inference.steps.parameters import PACK, convolution, is_in_rows, pack_bias
from nhwc.inference.steps.products import Extent, Window, blockings, product_step, table_bytes
from nhwc.inference.steps.registry import Candidate, Request, algorithm

#: Output rows of a block, likeliest first.
_BLOCKS = (4, 2, 8)
#: What one task's buffers may fill: the second-level cache, less the weights.
_SCRATCH_BYTES = 900 * 1024
#: Tasks for each thread: each computes the rows at its upper and lower edge that others compute too.
_TASKS = 2


class Parameters(ctypes.Structure):
    """inverted_residual.cpp's; a convolution that is not there has no weight."""

    _fields_ = [("expand", Conv), ("depthwise", Conv), ("project", Conv)]


@algorithm(InvertedResidual)
def inverted_residual(request: Request) -> Iterator[Candidate]:
    """Candidates for depthwise kernels of 3, 5 and 7, stride 1 or 2."""
    operation = request.operation
    assert isinstance(operation, InvertedResidual)
    if not is_in_rows(request) or not _is_suitable(operation):
        return
    deep = _between(request, operation)
    for block in _BLOCKS:
        block_bytes = _buffer_bytes(operation, deep, block)
        if block_bytes > _SCRATCH_BYTES and block != min(_BLOCKS):
            continue
        tasks = -(-_TASKS * request.threads // max(1, deep.output.shape[0]))
        rows = up(-(-deep.output.shape[2] // tasks), block)
        for pixels, two in registers_of(operation.depthwise)[:2]:
            choice = (pixels, two, block, rows)
            label = f"inverted residual block={block} run={rows} pixels={pixels} rows={two}"
            yield Candidate(label, partial(_build, request, operation, deep, choice, label))


def _is_suitable(operation: InvertedResidual) -> bool:
    deep = operation.depthwise
    around = [each for each in (operation.expand, operation.project) if each is not None]
    plain = all(_is_pointwise(each) for each in around) and len(operation.inner) == len(around)
    return (
        bool(around)
        and plain
        and deep.weight.shape[:2] == (deep.groups, 1)
        and tuple(deep.weight.shape[2:]) in {(3, 3), (5, 5), (7, 7)}
        and deep.stride in {(1, 1), (2, 2)}
        and deep.dilation == (1, 1)
    )


def _is_pointwise(conv: Convolution) -> bool:
    return (
        not conv.transposed
        and conv.groups == 1
        and tuple(conv.weight.shape[2:]) == conv.stride == (1, 1)
        and conv.padding == (0, 0)
    )


def _between(request: Request, operation: InvertedResidual) -> Request:
    """The depthwise convolution's own request: where a 1x1 convolution is, a tensor that has a shape and no memory."""
    x, y = request.inputs[0], request.output
    channels = operation.depthwise.groups
    if operation.expand is not None:
        x = _nowhere(x, channels)
    is_last = operation.project is None
    if not is_last:
        y = _nowhere(y, channels)
    fused = request.fused if is_last else operation.inner[-1]
    return replace(
        request,
        operation=operation.depthwise,
        inputs=(x,),
        output=y,
        fused=fused,
        addend=request.addend if is_last else None,
    )


def _nowhere(like: Placed, channels: int) -> Placed:
    return Placed(*NOTHING, (like.shape[0], channels, *like.shape[2:]), (0, 1, 0, 0))


def _buffer_bytes(operation: InvertedResidual, deep: Request, block: int) -> int:
    """Bytes of a task's rows, before and after the depthwise convolution."""
    pixel = up(operation.depthwise.groups, PACK) * 4
    conv = operation.depthwise
    before = ((block - 1) * conv.stride[0] + conv.weight.shape[2]) * deep.inputs[0].shape[3]
    after = block * deep.output.shape[3]
    return pixel * (before * (operation.expand is not None) + after * (operation.project is not None))


def _build(request: Request, operation: InvertedResidual, deep: Request, choice: tuple[int, ...], label: str) -> Step:
    absent = Conv(weight=Ref(*NOTHING))
    absent.epilogue.addend = Rows.none()
    expand, project = absent, absent
    table = 0
    kept: list[torch.Tensor] = []
    if operation.expand is not None:
        of_expand = replace(request, output=deep.inputs[0], fused=operation.inner[0], addend=None)
        step, rows = _pointwise(of_expand, operation.expand)
        expand, table, kept = _conv(step), max(table, rows), [*kept, *step.constants]
    if operation.project is not None:
        step, rows = _pointwise(replace(request, inputs=(deep.output,)), operation.project)
        project, table, kept = _conv(step), max(table, rows), [*kept, *step.constants]
    conv = operation.depthwise
    weight, bias = pack(conv.weight.detach().float()), pack_bias(conv.bias, conv.groups)
    parameters, own = convolution(deep, conv, weight, bias, choice)
    scratch = up(table_bytes(1, table) + _buffer_bytes(operation, deep, choice[2]), 64)
    return Step(
        "inverted_residual",
        Parameters(expand, parameters, project),
        label,
        request.threads * scratch,
        (*kept, *own),
    )


def _pointwise(request: Request, conv: Convolution) -> tuple[Step, int]:
    """A 1x1 convolution's step, for its parameters and constants, and the rows of its tables."""
    width = max(1, request.output.shape[3])
    extent = Extent(pixels=width, columns=conv.weight.shape[0], depth=conv.weight.shape[1])
    blocking = next(iter(blockings(extent, 1)))
    blocking = replace(blocking, rows=96)
    weight = packed(matrices(conv.weight, 1), blocking.vectors, conv.weight.shape[1])
    step = product_step("conv_direct", "", request, weight, conv.bias, Window(), blocking, 0)
    return step, blocking.rows


def _conv(step: Step) -> Conv:
    assert isinstance(step.parameters, Conv)
    return step.parameters
