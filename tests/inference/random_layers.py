"""Layers for random graphs: convolutions, pools, norms, activations, products, and blocks of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 the name that everyone knows
from inference.random_draws import draw, drawn_sizes
from torch import Tensor, nn


@draw(10)
def convolution(graph: Any, r: random.Random, x: Tensor) -> Any:
    spatial = x.dim() - 2
    if spatial not in (1, 2, 3):
        return None
    channels = x.shape[1]
    groups = r.choice([1, 1, 1, channels, channels, *(g for g in (2, 3, 4) if channels % g == 0)])
    out = groups * r.choice((1, 1, 2, 3)) if groups > 1 else r.choice((1, 2, 5, 8, 16, 17, 32, 64, 67, channels))
    options = {
        "stride": drawn_sizes(r, spatial, (1, 1, 1, 2, 3)),
        "dilation": drawn_sizes(r, spatial, (1, 1, 1, 2)),
        "groups": groups,
        "bias": r.random() < 0.7,
    }
    kernel = drawn_sizes(r, spatial, (1, 1, 2, 3, 3, 3, 5, 7))
    if r.random() < 0.2:
        made = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[spatial - 1]
        padding = drawn_sizes(r, spatial, (0, 0, 1))
        extra = r.choice((0, 0, 1))
        return graph.keep(made(channels, out, kernel, padding=padding, output_padding=extra, **options)), ()
    padding = r.choice([drawn_sizes(r, spatial, (0, 1, 1, 2, 3)), drawn_sizes(r, spatial, (0, 1)), "same", "valid"])
    if padding == "same":
        options["stride"] = 1
    mode = r.choice(("zeros", "zeros", "zeros", "zeros", "reflect", "replicate", "circular"))
    conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[spatial - 1]
    module = graph.keep(conv(channels, out, kernel, padding=padding, padding_mode=mode, **options))
    return module, ()


@draw(4)
def pool(graph: Any, r: random.Random, x: Tensor) -> Any:
    spatial = x.dim() - 2
    if spatial not in (1, 2, 3):
        return None
    kernel, stride, ceil = drawn_sizes(r, spatial, (1, 2, 3)), drawn_sizes(r, spatial, (1, 2, 3)), r.random() < 0.3
    padding = r.choice((0, 0, 1))
    kind = r.choice(("maximum", "average", "adaptive", "adaptive maximum", "lp"))
    if kind == "maximum":
        name = f"max_pool{spatial}d"
        dilation = r.choice((1, 1, 2))
        return lambda x: getattr(F, name)(x, kernel, stride, padding, dilation, ceil), ()
    if kind == "average":
        counted = r.random() < 0.5
        return lambda x: getattr(F, f"avg_pool{spatial}d")(x, kernel, stride, padding, ceil, counted), ()
    size = r.choice([1, 1, drawn_sizes(r, spatial, (1, 2, 3, 7))])
    name = f"adaptive_{'max' if 'maximum' in kind else 'avg'}_pool{spatial}d"
    return lambda x: getattr(F, name)(x, size), ()


@draw(4)
def norm(graph: Any, r: random.Random, x: Tensor) -> Any:
    if x.dim() < 2:
        return None
    channels, affine = x.shape[1], r.random() < 0.7
    if r.random() < 0.3 and x.shape[-1] > 2:
        return graph.keep(nn.LayerNorm(x.shape[-1], elementwise_affine=affine)), ()
    if r.random() < 0.4 and x[0].numel() > 4:
        groups = r.choice([g for g in (1, 2, 3, 4, channels) if channels % g == 0])
        return graph.keep(nn.GroupNorm(groups, channels, affine=affine)), ()
    if x.dim() > 2 and r.random() < 0.2 and x[0, 0].numel() > 4:
        kinds = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
        return graph.keep(kinds[x.dim() - 3](channels, affine=affine)), ()
    batch = (nn.BatchNorm1d, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)[x.dim() - 2]
    return graph.keep(batch(channels, affine=affine)), ()


_SMOOTH: list[Callable[[Tensor], Tensor]] = [
    F.relu, F.relu6, F.hardtanh, F.leaky_relu, F.silu, F.hardswish, F.hardsigmoid, torch.sigmoid, F.gelu, torch.tanh,
    F.elu, F.softplus, F.mish, torch.abs, torch.neg, torch.exp, torch.erf, torch.square, F.selu, F.celu, F.logsigmoid,
    lambda x: F.gelu(x, approximate="tanh"), lambda x: x.clamp(-0.4, 0.7), lambda x: x.clamp(min=0.1),
    lambda x: x.abs().add(0.5).sqrt(), lambda x: (x * x + 1).rsqrt(), lambda x: (x.abs() + 1).log(),
    lambda x: 1 / (1 + x.abs()), lambda x: x.abs().add(0.3) ** 1.5, lambda x: x**3, F.hardshrink, F.softsign,
    lambda x: torch.where(x > 0, x, 0.3 * x), torch.sin, lambda x: F.glu(x, 1), torch.reciprocal,
]  # fmt: skip


@draw(8)
def activation(graph: Any, r: random.Random, x: Tensor) -> Any:
    if r.random() < 0.1 and x.dim() > 1:
        return graph.keep(nn.PReLU(r.choice((1, x.shape[1])))), ()
    return r.choice(_SMOOTH), ()


@draw(4)
def in_place(graph: Any, r: random.Random, x: Tensor) -> Any:
    half = x.shape[-1] // 2 or None
    return r.choice(
        [
            lambda x: F.relu(x, inplace=True),
            lambda x: F.hardswish(x, inplace=True),
            lambda x: x.add_(1.5),
            lambda x: x.mul_(0.7),
            lambda x: x.clamp_(-1, 1),
            lambda x: x[..., :half].mul_(2.0),
            lambda x: x[:1].sigmoid_(),
            lambda x: x.clone().fill_(0.3).add_(x),
        ]
    ), ()


@draw(4)
def linear(graph: Any, r: random.Random, x: Tensor) -> Any:
    out, bias = r.choice((1, 3, 10, 16, 33, 64)), r.random() < 0.7
    if x.dim() > 2 and r.random() < 0.6:
        module = graph.keep(nn.Linear(x[0].numel(), out, bias=bias))
        return lambda x: module(x.flatten(1)), ()
    if r.random() < 0.2:
        return lambda x: x @ x.mT / 8, ()
    return graph.keep(nn.Linear(x.shape[-1], out, bias=bias)), ()


@draw(3)
def gated(graph: Any, r: random.Random, x: Tensor) -> Any:
    if x.dim() != 4:
        return None
    channels = x.shape[1]
    squeeze = graph.keep(nn.Conv2d(channels, 4, 1))
    excite = graph.keep(nn.Conv2d(4, channels, 1))
    gate = r.choice([torch.sigmoid, F.hardsigmoid])
    return lambda x: x * gate(excite(F.relu(squeeze(F.adaptive_avg_pool2d(x, 1))))), ()


@draw(3)
def block(graph: Any, r: random.Random, x: Tensor) -> Any:
    if x.dim() != 4:
        return None
    channels, wide, act = x.shape[1], r.choice((8, 24, 35)), r.choice([nn.ReLU6, nn.Hardswish, nn.SiLU])
    stride, kernel = r.choice((1, 1, 2)), r.choice((3, 5))
    layers: list[nn.Module] = [
        nn.Conv2d(channels, wide, 1, bias=False), nn.BatchNorm2d(wide), act(inplace=True),
        nn.Conv2d(wide, wide, kernel, stride, kernel // 2, groups=wide, bias=False), nn.BatchNorm2d(wide), act(),
        nn.Conv2d(wide, channels, 1), nn.BatchNorm2d(channels),
    ]  # fmt: skip
    module = graph.keep(nn.Sequential(*layers))
    return (lambda x: x + module(x)) if stride == 1 else module, ()


@draw(4)
def reduced(graph: Any, r: random.Random, x: Tensor) -> Any:
    axes, kept = r.sample(range(x.dim()), r.randint(1, x.dim())), r.random() < 0.6
    spatial = list(range(2, x.dim())) or [0]
    return r.choice(
        [
            lambda x: x.mean(spatial, keepdim=kept),
            lambda x: x.mean(axes, keepdim=kept),
            lambda x: x.sum(axes, keepdim=kept) / 8,
            lambda x: x.amax(axes, keepdim=kept),
            lambda x: x.softmax(axes[0]),
            lambda x: F.log_softmax(x, axes[0]),
            lambda x: F.normalize(x + 2, dim=axes[0]),
            lambda x: x.cumsum(axes[0]) / 4,
            lambda x: x.max(axes[0])[0],
        ]
    ), ()
