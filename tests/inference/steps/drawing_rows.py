"""Random requests for the operations without weights: pooling, resampling, norms, chains, copies."""

from __future__ import annotations

import random
from typing import Any, Literal

import torch
from inference.steps.drawing import Drawn, draws, in_memory, picture, plain, rows, tokens, with_epilogue
from torch.nn import functional

from nhwc.inference.operations import (
    AdaptivePool,
    Copy,
    Elementwise,
    Mean,
    Normalization,
    Pool,
    Resample,
    Softmax,
    Term,
)

KINDS: tuple[Literal["maximum", "average"], ...] = ("maximum", "average")
_POOLS: dict[tuple[str, int], Any] = {
    ("maximum", 1): functional.max_pool1d,
    ("maximum", 2): functional.max_pool2d,
    ("maximum", 3): functional.max_pool3d,
    ("average", 1): functional.avg_pool1d,
    ("average", 2): functional.avg_pool2d,
    ("average", 3): functional.avg_pool3d,
}
_ADAPTIVE: dict[tuple[str, int], Any] = {
    ("maximum", 1): functional.adaptive_max_pool1d,
    ("maximum", 2): functional.adaptive_max_pool2d,
    ("maximum", 3): functional.adaptive_max_pool3d,
    ("average", 1): functional.adaptive_avg_pool1d,
    ("average", 2): functional.adaptive_avg_pool2d,
    ("average", 3): functional.adaptive_avg_pool3d,
}
_LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}


@draws(Pool)
def pool(draw: random.Random) -> Drawn:
    spatial, kind = draw.choice([1, 2, 2, 2, 3]), draw.choice(KINDS)
    common = draw.random() < 0.5
    kernel = tuple([draw.choice([2, 3])] * spatial if common else [draw.randint(1, 5) for _ in range(spatial)])
    stride = tuple([draw.choice([1, 2])] * spatial if common else [draw.randint(1, 4) for _ in range(spatial)])
    padding = tuple(draw.randint(0, size // 2) for size in kernel)
    dilation = tuple(draw.choice([1, 1, 2]) for _ in kernel) if kind == "maximum" else (1,) * spatial
    x = picture(draw, spatial, max(d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)))
    arguments: dict[str, Any] = {"ceil_mode": draw.random() < 0.5, "padding": padding}
    include, divisor = draw.random() < 0.5, draw.choice([None, None, 5])
    if kind == "maximum":
        arguments["dilation"] = dilation
    else:
        arguments["count_include_pad"] = include
    if kind == "maximum" or spatial == 1:
        divisor = None
    if divisor is not None:
        arguments["divisor_override"] = divisor
    exact = _POOLS[kind, spatial](x.double(), kernel, stride, **arguments)
    return plain(draw, Pool(kind, kernel, stride, padding, dilation, include, divisor), x, exact)


@draws(AdaptivePool)
def adaptive_pool(draw: random.Random) -> Drawn:
    spatial, kind = draw.choice([1, 2, 2, 3]), draw.choice(KINDS)
    x = picture(draw, spatial)
    size = tuple(draw.choice([1, 1, 2, 7, draw.randint(1, 9)]) for _ in range(spatial))
    return plain(draw, AdaptivePool(kind), x, _ADAPTIVE[kind, spatial](x.double(), size))


@draws(Mean)
def mean(draw: random.Random) -> Drawn:
    spatial = draw.choice([1, 2, 2, 3])
    x = picture(draw, spatial) + 10
    return plain(draw, Mean(), x, x.double().mean(tuple(range(2, spatial + 2)), keepdim=draw.random() < 0.5))


@draws(Resample)
def resample(draw: random.Random) -> Drawn:
    spatial = draw.choice([1, 2, 2, 2, 3])
    x = picture(draw, spatial)
    is_linear, align = draw.random() < 0.6, draw.random() < 0.4
    arguments: dict[str, Any] = {"mode": _LINEAR[spatial], "align_corners": align} if is_linear else {"mode": "nearest"}
    scales: tuple[float | None, ...] = (None,) * spatial
    if draw.random() < 0.5:
        arguments["scale_factor"] = scales = tuple(draw.choice([2.0, 1.0, 3.0, 1.7]) for _ in range(spatial))
    else:
        arguments["size"] = tuple(draw.randint(1, 33 if spatial < 3 else 12) for _ in range(spatial))
    exact = functional.interpolate(x.double() if is_linear else x, **arguments).double()
    return plain(draw, Resample("linear" if is_linear else "nearest", is_linear and align, scales), x, exact)


@draws(Normalization)
def normalization(draw: random.Random) -> Drawn:
    kind = draw.choice(["group", "instance", "layer"])
    x = picture(draw, 2, least=2)
    channels = x.shape[1]
    groups = draw.choice([each for each in range(1, channels + 1) if channels % each == 0])
    weight, bias = [torch.randn(channels) if draw.random() < 0.7 else None for _ in range(2)]
    wide = [None if each is None else each.double() for each in (weight, bias)]
    if kind == "layer":
        turned = x.movedim(1, -1).contiguous()
        operation = Normalization("layer", 1, weight, bias, 1e-3)
        exact = functional.layer_norm(turned.double(), (channels,), *wide, 1e-3)
        if draw.random() < 0.5:
            return Drawn(operation, (tokens(draw, turned),), tokens(draw, exact.float()), exact)
        if channels > 1:  # of one channel, rows and planes cannot be told apart by their strides
            return plain(draw, operation, x, exact.movedim(-1, 1))
    groups = channels if kind == "instance" else groups
    operation = Normalization("instance" if kind == "instance" else "group", groups, weight, bias, 1e-3)
    exact = functional.group_norm(x.double(), groups, *wide, 1e-3)
    drawn = with_epilogue(draw, operation, rows(draw, x), exact, rows)
    return drawn if drawn.addend is None else plain(draw, operation, x, exact)


@draws(Softmax)
def softmax(draw: random.Random) -> Drawn:
    x = torch.randn(*[draw.randint(1, 7) for _ in range(draw.randint(1, 3))], draw.randint(2, 2 * 67)) * 5
    log = draw.random() < 0.5
    exact = torch.log_softmax(x.double(), -1) if log else torch.softmax(x.double(), -1)
    return Drawn(Softmax(log), (tokens(draw, x),), tokens(draw, exact.float()), exact)


@draws(Elementwise)
def elementwise(draw: random.Random) -> Drawn:
    x = picture(draw, draw.choice([1, 2, 3]))
    y = torch.randn([size if draw.random() < 0.6 else 1 for size in x.shape])
    placed = rows(draw, y) if draw.random() < 0.7 else in_memory(y, y.stride())
    terms = [Term("input", index=0), Term("input", index=1)]
    kinds = {"add": torch.add, "subtract": torch.sub, "multiply": torch.mul, "maximum": torch.maximum}
    exact = x.double()
    for kind in draw.sample(sorted(kinds), draw.randint(1, 4)):
        terms.append(Term(kind, (len(terms) - 1 if len(terms) > 2 else 0, 1)))
        exact = kinds[kind](exact, y.double())
    drawn = with_epilogue(draw, Elementwise(tuple(terms)), rows(draw, x), exact, rows)
    return Drawn(drawn.operation, (*drawn.inputs, placed), drawn.output, drawn.exact, drawn.fused, drawn.addend)


@draws(Copy)
def copy(draw: random.Random) -> Drawn:
    x = picture(draw, draw.choice([1, 2, 2, 3]))
    padding = tuple((draw.randint(0, 3), draw.randint(0, 3)) for _ in x.shape[2:]) if draw.random() < 0.6 else ()
    ends = [each for pair in reversed(padding) for each in pair]
    exact = functional.pad(x, ends, value=1.5) if padding else x

    def lay(values: torch.Tensor) -> torch.Tensor:
        return rows(draw, values) if draw.random() < 0.6 else in_memory(values, values.contiguous().stride())

    return Drawn(Copy(padding, 1.5), (lay(x),), lay(exact), exact.double())
