"""Operations run by torch: where no compiled step takes one, and as the reference for those that do."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F  # noqa: N812 the name that everyone knows

from nhwc.inference.native import Activation
from nhwc.inference.operations import (
    AdaptivePool,
    Convolution,
    Copy,
    Elementwise,
    Fused,
    InvertedResidual,
    Linear,
    Mean,
    Normalization,
    Operation,
    Pool,
    Resample,
    Softmax,
    Term,
)


def computed(
    work: Operation,
    inputs: Sequence[torch.Tensor],
    shape: Sequence[int],
    fused: Fused,
    addend: torch.Tensor | None,
    axis: int | None,
) -> torch.Tensor:
    """The result of one operation, in the dtype of its inputs (constants are brought to it), of this shape."""
    result = _plain(work, inputs, tuple(shape), axis)
    if addend is not None and not fused.addend_last:
        result = result + addend
    result = activated(result, fused.activation, fused.lo, fused.hi, fused.slope)
    return result + addend if addend is not None and fused.addend_last else result


def activated(
    x: torch.Tensor, kind: Activation, lo: float = 0.0, hi: float = 0.0, slope: torch.Tensor | None = None
) -> torch.Tensor:
    """An activation as epilogue.h numbers them."""
    match kind:
        case Activation.NONE:
            return x
        case Activation.CLAMP:
            return x.clamp(lo, hi)
        case Activation.LEAKY_RELU:
            return F.leaky_relu(x, lo)
        case Activation.GELU:
            return F.gelu(x)
        case Activation.GELU_TANH:
            return F.gelu(x, approximate="tanh")
        case Activation.PRELU:
            assert slope is not None
            return F.prelu(x, slope.to(x.dtype))
        case Activation.ELU:
            return F.elu(x, lo)
        case Activation.SOFTPLUS:
            return F.softplus(x, lo, hi)
    simple: dict[Activation, Callable[[torch.Tensor], torch.Tensor]] = {
        Activation.SILU: F.silu,
        Activation.HARDSWISH: F.hardswish,
        Activation.HARDSIGMOID: F.hardsigmoid,
        Activation.SIGMOID: torch.sigmoid,
        Activation.TANH: torch.tanh,
        Activation.MISH: F.mish,
    }
    return simple[kind](x)


def _plain(work: Operation, inputs: Sequence[torch.Tensor], shape: tuple[int, ...], axis: int | None) -> torch.Tensor:
    x = inputs[0]
    match work:
        case Convolution():
            extra = work.output_padding or (0,) * len(work.stride)
            options = (list(work.stride), list(work.padding), list(work.dilation), work.transposed, list(extra))
            weight, bias = work.weight.to(x.dtype), _as(work.bias, x)
            return torch.ops.aten.convolution(x, weight, bias, *options, work.groups)  # type: ignore[no-any-return]
        case InvertedResidual():
            return _block(work, x)
        case Linear():
            return F.linear(x, work.weight.to(x.dtype), _as(work.bias, x))
        case Pool():
            return _pooled(work, x, shape)
        case AdaptivePool():
            return _ADAPTIVE[work.kind][x.dim() - 4](x, shape[2:])
        case Resample():
            return _resampled(work, x, shape)
        case Elementwise():
            return elementwise(work, inputs)
        case Normalization():
            return _normalized(work, x)
        case Softmax():
            return (torch.log_softmax if work.log else torch.softmax)(x, -1 if axis is None else axis)
        case Mean():
            return x.mean(tuple(range(2, x.dim()))).view(shape)
        case Copy():
            return _padded(work, x)


_ADAPTIVE: dict[str, tuple[Callable[..., torch.Tensor], ...]] = {
    "average": (F.adaptive_avg_pool2d, F.adaptive_avg_pool3d),
    "maximum": (F.adaptive_max_pool2d, F.adaptive_max_pool3d),
}


def _padded(work: Copy, x: torch.Tensor) -> torch.Tensor:
    pairs = [size for pair in reversed(work.padding) for size in pair]
    return F.pad(x, pairs, value=work.value) if any(pairs) else x


def _block(work: InvertedResidual, x: torch.Tensor) -> torch.Tensor:
    works = [each for each in (work.expand, work.depthwise, work.project) if each is not None]
    for each, fused in zip(works, (*work.inner, Fused()), strict=True):
        x = activated(_plain(each, [x], (), None), fused.activation, fused.lo, fused.hi, fused.slope)
    return x


def _as(constant: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor | None:
    return None if constant is None else constant.to(like.dtype)


def _pooled(work: Pool, x: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    floor = [
        (size + 2 * p - d * (k - 1) - 1) // s + 1
        for size, k, s, p, d in zip(x.shape[2:], work.kernel, work.stride, work.padding, work.dilation, strict=True)
    ]
    ceil = tuple(floor) != shape[2:]
    volumes = len(work.kernel) == 3
    if work.kind == "maximum":
        largest = F.max_pool3d if volumes else F.max_pool2d
        pooled: torch.Tensor = largest(x, work.kernel, work.stride, work.padding, work.dilation, ceil)
        return pooled
    average = F.avg_pool3d if volumes else F.avg_pool2d
    return average(x, work.kernel, work.stride, work.padding, ceil, work.count_include_pad, work.divisor)


def _resampled(work: Resample, x: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    size, spatial = list(shape[2:]), len(shape) - 2
    scales = [*work.scales] or [None] * spatial
    if work.mode == "nearest":
        nearest = torch.ops.aten.upsample_nearest2d if spatial == 2 else torch.ops.aten.upsample_nearest3d
        result: torch.Tensor = nearest(x, size, *scales)
        return result
    linear = torch.ops.aten.upsample_bilinear2d if spatial == 2 else torch.ops.aten.upsample_trilinear3d
    return linear(x, size, work.align_corners, *scales)  # type: ignore[no-any-return]


def _normalized(work: Normalization, x: torch.Tensor) -> torch.Tensor:
    weight, bias = _as(work.weight, x), _as(work.bias, x)
    if work.kind == "layer":
        return F.layer_norm(x, x.shape[-1:], weight, bias, work.eps)
    if work.kind == "group":
        return F.group_norm(x, work.groups, weight, bias, work.eps)
    return F.instance_norm(x, weight=weight, bias=bias, eps=work.eps)


def elementwise(work: Elementwise, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
    """A chain of pointwise operations."""
    results: list[torch.Tensor] = []
    for term in work.terms:
        results.append(_term(term, results, inputs))
    return results[-1]


def _term(term: Term, results: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> torch.Tensor:
    if term.kind == "input":
        return inputs[term.index].to(inputs[0].dtype)
    if term.kind == "constant":
        return torch.tensor(term.value, dtype=inputs[0].dtype, device="cpu")
    operands = [results[place] for place in term.operands]
    if term.kind == "activation":
        return activated(operands[0], term.activation, term.lo, term.hi)
    if term.kind == "power":
        return operands[0].pow(term.value)
    return _FUNCTIONS[term.kind](*operands)


_FUNCTIONS: dict[str, Callable[..., torch.Tensor]] = {
    "add": torch.add,
    "subtract": torch.sub,
    "multiply": torch.mul,
    "divide": torch.div,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "abs": torch.abs,
    "negate": torch.neg,
    "reciprocal": torch.reciprocal,
    "erf": torch.erf,
}
