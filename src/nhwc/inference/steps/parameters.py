"""The parameters of a convolution by depthwise and Winograd kernels, whose bias is never left out."""

from __future__ import annotations

import torch
import torch.nn.functional as functional

from nhwc.inference.native import Conv, Epilogue, Placed, Rows
from nhwc.inference.operations import Convolution
from nhwc.inference.steps.registry import Request

#: Channels of one block of packed weights and of the bias: the longest vector of any instruction set.
PACK = 16


def is_in_rows(request: Request) -> bool:
    """Whether every pixel's channels lie together in what the kernels read and write, and addends have a value each."""
    tensors = (request.inputs[0], request.output, *([request.addend] if request.addend else []))
    alike = request.addend is None or request.addend.shape == request.output.shape
    return alike and all(each.shape[1] == 1 or each.strides[1] == 1 for each in tensors)


def pack_bias(bias: torch.Tensor | None, channels: int) -> torch.Tensor:
    """(K,) or None as floats for whole blocks of 16 channels."""
    given = torch.zeros(channels, dtype=torch.float32, device="cpu") if bias is None else bias.detach().float()
    return functional.pad(given, (0, -channels % PACK)).contiguous()


def convolution(
    request: Request, operation: Convolution, weight: torch.Tensor, bias: torch.Tensor, choice: tuple[int, ...]
) -> tuple[Conv, tuple[torch.Tensor, ...]]:
    """The parameters for packed weights, and what must stay alive with them; images get a depth of one."""
    fused, kept = request.fused, [weight, bias]
    slope = None
    if fused.slope is not None:
        kept.append(pack_bias(fused.slope.expand(request.output.shape[1]), request.output.shape[1]))
        slope = Placed.constant(kept[-1])
    missing = 3 - len(operation.stride)
    parameters = Conv(
        Rows.of(request.inputs[0]),
        Rows.of(request.output),
        Epilogue.of(fused.activation, fused.lo, fused.hi, slope, request.addend, fused.addend_last),
        Placed.constant(weight).ref,
        Placed.constant(bias).ref,
        operation.groups,
        (1,) * missing + tuple(operation.weight.shape[2:]),
        (1,) * missing + tuple(operation.stride),
        (1,) * missing + tuple(operation.dilation),
        (0,) * missing + tuple(operation.padding),
        choice,
    )
    return parameters, tuple(kept)
