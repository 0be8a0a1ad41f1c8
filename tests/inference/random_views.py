"""What random graphs do besides layers: arithmetic on several values, joins, slices, other shapes and sizes."""

from __future__ import annotations

import random
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 the name that everyone knows
from inference.random_draws import draw
from torch import Tensor, nn


@draw(8)
def binary(graph: Any, r: random.Random, x: Tensor) -> Any:
    def fits(other: Tensor) -> bool:
        try:
            return torch.broadcast_shapes(x.shape, other.shape) is not None
        except RuntimeError:
            return False

    function = r.choice(
        [
            torch.add, torch.add, torch.add, torch.mul, torch.mul, torch.sub, torch.maximum, torch.minimum,
            lambda a, b: a / (b.abs() + 1), lambda a, b: torch.add(a, b, alpha=-0.5), lambda a, b: b - a,
            lambda a, b: F.relu(a + b), lambda a, b: a * torch.sigmoid(b), lambda a, b: torch.lerp(a, a + b, 0.3),
        ]
    )  # fmt: skip
    place = graph.other(r, fits)
    return None if place is None else (function, (place,))


@draw(4)
def with_constant(graph: Any, r: random.Random, x: Tensor) -> Any:
    shape = [size if r.random() < 0.5 else 1 for size in x.shape][r.randrange(x.dim() + 1) :]
    number = r.choice((0.5, -1.25, 3, 1))
    held = nn.Module()
    held.register_buffer("k", torch.randn(shape) if r.random() < 0.7 else torch.tensor(number))
    graph.parts.append(held)
    function = r.choice([torch.add, torch.mul, lambda x, k: k - x, torch.maximum, lambda x, k: x * number + k])
    return lambda x: function(x, held.k), ()


@draw(5)
def cat(graph: Any, r: random.Random, x: Tensor) -> Any:
    axis = r.choice((1, 1, 1, 0, x.dim() - 1)) % x.dim()

    def fits(other: Tensor) -> bool:
        sizes = [(a, b) for place, (a, b) in enumerate(zip(x.shape, other.shape, strict=False)) if place != axis]
        return other.dim() == x.dim() and all(a == b for a, b in sizes)

    found = graph.other(r, fits), graph.other(r, fits)
    others = [each for each in found if each is not None][: r.choice((1, 1, 2))]
    if r.random() < 0.15:
        return lambda *xs: torch.stack([each[: len(x)].reshape(-1)[: min(x.numel(), 8)] for each in xs[:1]], 0), ()
    return lambda *xs: torch.cat(xs, axis), others


@draw(6)
def pieces(graph: Any, r: random.Random, x: Tensor) -> Any:
    axis = r.choice((1, 1, 1, 0, x.dim() - 1)) % x.dim()
    size = x.shape[axis]
    start, step = r.randrange(size), r.choice((1, 1, 2))
    index = (slice(None),) * axis
    cut = r.randint(1, size)
    return r.choice(
        [
            lambda x: x.chunk(2, axis),
            lambda x: x.split([cut, size - cut], axis),
            lambda x: x[(*index, slice(start, None, step))],
            lambda x: x.narrow(axis, start, 1),
            lambda x: x.select(axis, start),
            lambda x: x[..., ::2],
            lambda x: x.unbind(axis)[start],
            lambda x: x.flip(axis),
            lambda x: x.roll(start, axis),
            lambda x: x.index_select(axis, torch.tensor([start, 0])),
        ]
    ), ()


@draw(6)
def reshaped(graph: Any, r: random.Random, x: Tensor) -> Any:
    order = r.sample(range(x.dim()), x.dim())
    a, b = r.randrange(x.dim()), r.randrange(x.dim())
    low, high = min(a, b), max(a, b)
    divisors = [d for d in range(1, x.shape[low] + 1) if x.shape[low] % d == 0]
    inner = r.choice(divisors)
    channels = x.shape[1] if x.dim() > 1 else 1
    groups = r.choice([g for g in range(1, channels + 1) if channels % g == 0])
    return r.choice(
        [
            lambda x: x.permute(order),
            lambda x: x.permute(order).contiguous(),
            lambda x: x.transpose(a, b),
            lambda x: x.flatten(low, high),
            lambda x: x.flatten(1),
            lambda x: x.unflatten(low, (-1, inner)) if x.dim() < 5 else x,
            lambda x: x.squeeze(),
            lambda x: x.unsqueeze(a) if x.dim() < 5 else x,
            lambda x: F.channel_shuffle(x, groups),
            lambda x: x.reshape(x.shape[0], groups, channels // groups, -1).transpose(1, 2).reshape(x.shape),
            lambda x: F.pixel_shuffle(x, 2),
            lambda x: F.pixel_unshuffle(x, 2),
            lambda x: x.expand(2, *x.shape) if x.dim() < 5 else x,
            lambda x: x.repeat_interleave(2, a),
            lambda x: x.contiguous(memory_format=torch.channels_last),
        ]
    ), ()


@draw(3)
def padded(graph: Any, r: random.Random, x: Tensor) -> Any:
    sides = [r.choice((0, 0, 1, 2, -1)) for _ in range(2 * r.randint(1, min(3, x.dim())))]
    mode = r.choice(("constant", "constant", "reflect", "replicate", "circular"))
    if mode != "constant":
        return lambda x: F.pad(x, sides, mode), ()
    value = r.choice((0.0, 0.0, 1.5))
    return lambda x: F.pad(x, sides, value=value), ()


@draw(3)
def resized(graph: Any, r: random.Random, x: Tensor) -> Any:
    linear = {3: "linear", 4: "bilinear", 5: "trilinear"}.get(x.dim(), "none")
    mode = r.choice(("nearest", linear, linear, "bicubic", "area", "nearest-exact"))
    aligned = r.choice((True, False)) if mode in (linear, "bicubic") else None
    if r.random() < 0.5:
        size = [r.randint(1, 9) for _ in x.shape[2:]]
        return lambda x: F.interpolate(x, size=size, mode=mode, align_corners=aligned), ()
    # for other factors torch itself takes other neighbours in volumes than in volumes that lie in channels last
    factor = r.choice((2, 2.0, 0.5, 1.3, 3) if x.dim() < 5 else (2, 2.0, 0.5, 3))
    return lambda x: F.interpolate(x, scale_factor=factor, mode=mode, align_corners=aligned), ()
