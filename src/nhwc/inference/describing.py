"""What an item of a plan is, in words and numbers: its name, its flops and the bytes that it moves."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nhwc.inference.graph import Call
from nhwc.inference.items import Item
from nhwc.inference.layout import Place
from nhwc.inference.operations import (
    AdaptivePool,
    Convolution,
    Copy,
    Elementwise,
    InvertedResidual,
    Linear,
    Mean,
    Normalization,
    Operation,
    Pool,
    Resample,
    Softmax,
)

_FLOAT_BYTES = 4


def operation_name(item: Item) -> str:
    """The operation with what decides its cost, and what is fused into it.

    A convolution is told by its kernel, stride and groups: "convolution 3x3 /2, 32 groups + clamp".
    """
    fused = item.fused.activation
    after = [] if item.addend is None else ["add"]
    if fused:
        activation = _name_of_activation(item)
        after = [activation, *after] if item.fused.addend_last else [*after, activation]
    return " + ".join([_plain_name(item.work), *after])


def flop_of(item: Item) -> int:
    """Multiplications and additions of the operation as it is defined; 0 for what torch runs by a call of its own."""
    if item.output is None or isinstance(item.work, Call):
        return 0
    size = math.prod(item.output.shape)
    match item.work:
        case Convolution() as work:
            taps = math.prod(work.weight.shape[1:])
            points = math.prod(item.inputs[0].shape) if work.transposed else size
            return 2 * points * taps
        case InvertedResidual() as work:
            return _block_flop(work, item)
        case Linear() as work:
            return 2 * size * work.weight.shape[1]
        case Pool() as work:
            return size * math.prod(work.kernel)
        case AdaptivePool() | Mean():
            return math.prod(item.inputs[0].shape)
        case Elementwise() as work:
            return size * sum(each.kind not in {"input", "constant"} for each in work.terms)
        case Resample() as work:
            return 0 if work.mode == "nearest" else size * (2 ** (len(item.output.shape) - 1) - 1)
        case Normalization():
            return 5 * size
        case Softmax():
            return 4 * size
        case Copy():
            return 0


def _block_flop(work: InvertedResidual, item: Item) -> int:
    assert item.output is not None
    before, after = math.prod(item.inputs[0].shape), math.prod(item.output.shape)
    channels, deep = work.depthwise.groups, work.depthwise.weight[0].numel()
    total = before * channels if work.expand is not None else 0
    points = after // item.output.shape[1] * channels if item.output.shape[1] else 0
    total += points * deep
    return 2 * (total + (after * channels if work.project is not None else 0))


def bytes_of(item: Item) -> int:
    """Inputs, weights and output, each read or written once."""
    places = [*item.reads, *([] if item.output is None else [item.output])]
    moved = sum(_place_bytes(each) for each in places)
    weights = () if isinstance(item.work, Call) else _weights(item.work)
    return moved + _FLOAT_BYTES * sum(math.prod(each) for each in weights)


def _place_bytes(place: Place) -> int:
    return _FLOAT_BYTES * math.prod(
        size for size, stride in zip(place.shape, place.strides, strict=True) if stride or size == 1
    )


def _weights(work: Operation) -> list[tuple[int, ...]]:
    if isinstance(work, InvertedResidual):
        inner = (work.expand, work.depthwise, work.project)
        return [each for part in inner if part is not None for each in _weights(part)]
    held = [getattr(work, name, None) for name in ("weight", "bias")]
    return [tuple(each.shape) for each in held if each is not None]


def _plain_name(work: Operation | Call) -> str:
    match work:
        case Call():
            return work.name
        case Convolution():
            return _convolution_name(work)
        case InvertedResidual():
            return f"inverted residual {_sizes(work.depthwise.weight.shape[2:])}{_strided(work.depthwise.stride)}"
        case Pool():
            return f"{work.kind} pool {_sizes(work.kernel)}{_strided(work.stride)}"
        case AdaptivePool():
            return f"adaptive {work.kind} pool"
        case Resample():
            return f"{work.mode} resampling"
        case Elementwise():
            kinds = [
                each.activation.name.lower() if each.kind == "activation" else each.kind
                for each in work.terms
                if each.kind not in {"input", "constant"}
            ]
            return ", ".join(kinds) or "copy"
        case Normalization():
            return f"{work.kind} norm"
        case Softmax():
            return "log softmax" if work.log else "softmax"
        case Copy():
            return "padding" if any(size for pair in work.padding for size in pair) else "copy"
    return type(work).__name__.lower()


def _convolution_name(work: Convolution) -> str:
    kernel, groups = work.weight.shape[2:], work.groups
    name = "transposed convolution" if work.transposed else "convolution"
    channels = groups * work.weight.shape[1]
    if groups > 1:
        depthwise = groups == channels and not work.transposed
        name = f"depthwise {name}" if depthwise else f"{name} of {groups} groups"
    dilated = f" dilated {_sizes(work.dilation)}" if max(work.dilation, default=1) > 1 else ""
    return f"{name} {_sizes(kernel)}{_strided(work.stride)}{dilated}"


def _name_of_activation(item: Item) -> str:
    name = type(item.fused.activation)(item.fused.activation).name.lower()
    lo, hi = item.fused.lo, item.fused.hi
    if name == "clamp" and lo == 0:
        return "relu" if hi == float("inf") else f"relu{hi:g}"
    return name


def _sizes(numbers: Sequence[int]) -> str:
    return "x".join(map(str, numbers))


def _strided(stride: Sequence[int]) -> str:
    return f" /{_sizes(stride) if len(set(stride)) > 1 else stride[0]}" if max(stride, default=1) > 1 else ""
