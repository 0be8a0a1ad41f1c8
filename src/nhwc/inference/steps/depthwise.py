"""Depthwise convolution: every channel by itself, one or more output channels for each.

Weights are packed as (ceil(K / 16), taps, 16), whatever the instruction set: the taps of one vector of channels are
neighbours. Square kernels of 3, 5 and 7 pixels with stride 1 or 2 run from registers that hold ``pixels`` neighbours of
``rows`` output rows; all else (dilation, other kernels, volumes, several outputs per channel) runs pixel by pixel.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from nhwc.inference.native import Step
from nhwc.inference.operations import Convolution
from nhwc.inference.steps.parameters import PACK, convolution, is_in_rows, pack_bias
from nhwc.inference.steps.registry import Candidate, Request, algorithm


def pack(weight: torch.Tensor) -> torch.Tensor:
    """(K, 1, *kernel) as (ceil(K / 16), taps, 16), zeros after the last channel."""
    channels = weight.shape[0]
    blocks = -(-channels // PACK)
    padded = weight.new_zeros(blocks * PACK, weight[0].numel())
    padded[:channels] = weight.reshape(channels, -1)
    return padded.reshape(blocks, PACK, -1).transpose(1, 2).contiguous()


@algorithm(Convolution)
def depthwise(request: Request) -> Iterator[Candidate]:
    """Candidates where groups is the number of input channels."""
    operation = request.operation
    assert isinstance(operation, Convolution)
    per_channel = operation.weight.shape[1] == 1 and operation.groups == request.inputs[0].shape[1]
    if operation.transposed or not per_channel or not is_in_rows(request):
        return
    if _is_specialised(request, operation):
        for pixels, rows, channels, run in _choices(request, operation):
            label = f"depthwise pixels={pixels} rows={rows} channels={channels} run={run}"
            yield _candidate(request, operation, "conv_depthwise", label, (pixels, rows, channels, run))
    yield _candidate(request, operation, "conv_depthwise_general", "depthwise general", ())


def _is_specialised(request: Request, operation: Convolution) -> bool:
    kernel, stride = tuple(operation.weight.shape[2:]), operation.stride
    return (
        request.inputs[0].shape[1] == request.output.shape[1]
        and kernel in {(3, 3), (5, 5), (7, 7)}
        and stride in {(1, 1), (2, 2)}
        and operation.dilation == (1, 1)
    )


def _choices(request: Request, operation: Convolution) -> Iterator[tuple[int, int, int, int]]:
    """(pixels, rows, channels of a block, output rows of a task), likeliest first."""
    batch, channels, height, _width = request.output.shape
    kernel = operation.weight.shape[-1]
    whole = -(-channels // PACK) * PACK
    blocks = {whole: None} if kernel == 3 else {min(whole, 32): None, whole: None}
    for pixels, rows in registers_of(operation):
        for block in blocks:
            # a few tasks for every thread, so that the last one does not keep the others waiting
            tasks = -(-4 * request.threads // max(1, batch * -(-whole // block)))
            yield pixels, rows, block, max(rows, -(-height // tasks) // rows * rows)


def registers_of(operation: Convolution) -> tuple[tuple[int, int], ...]:
    """(pixels, rows) that the registers may hold, likeliest first."""
    return ((7, 2), (4, 2), (7, 1)) if operation.stride == (1, 1) else ((7, 1), (4, 1))


def _candidate(
    request: Request, operation: Convolution, function: str, label: str, choice: tuple[int, ...]
) -> Candidate:
    def build() -> Step:
        weight = pack(operation.weight.detach().float())
        bias = pack_bias(operation.bias, request.output.shape[1])
        parameters, kept = convolution(request, operation, weight, bias, choice)
        return Step(function, parameters, label, constants=kept)

    return Candidate(label, build)
