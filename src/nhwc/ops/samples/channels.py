"""What models do along the channels: shuffle, split, select, join, exchange them for pixels."""

from __future__ import annotations

import torch
from torch.nn import functional

from nhwc.ops.case import Case
from nhwc.ops.samples.registry import Draw, Shape, sample


@sample("channel shuffle by view and transpose", "idiom")
def shuffle_by_hand(draw: Draw, shape: Shape) -> Case:
    groups = 2 if shape[1] % 2 == 0 else 1

    def run(x: torch.Tensor) -> torch.Tensor:
        n, channels, *space = x.shape
        return x.view(n, groups, channels // groups, *space).transpose(1, 2).contiguous().view(n, channels, *space)

    return Case(run, (draw.normal(*shape),))


@sample("channel shuffle by reshape", "idiom")
def shuffle_by_reshape(draw: Draw, shape: Shape) -> Case:
    groups = 2 if shape[1] % 2 == 0 else 1

    def run(x: torch.Tensor) -> torch.Tensor:
        n, channels, *space = x.shape
        return x.reshape(n, groups, channels // groups, *space).transpose(1, 2).flatten(1, 2)

    return Case(run, (draw.normal(*shape),))


@sample("channel_shuffle", "module")
def shuffle(draw: Draw, shape: Shape) -> Case:
    return Case(functional.channel_shuffle, (draw.normal(*shape), 2 if shape[1] % 2 == 0 else 1))


@sample("chunk in two along channels, then cat", "idiom")
def chunk_and_cat(draw: Draw, shape: Shape) -> Case:
    def run(x: torch.Tensor) -> torch.Tensor:
        return torch.cat(x.chunk(2, 1)[::-1], 1)

    return Case(run, (draw.normal(*shape),))


@sample("cat along channels", "idiom")
def cat(draw: Draw, shape: Shape) -> Case:
    def run(*pieces: torch.Tensor) -> torch.Tensor:
        return torch.cat(pieces, 1)

    return Case(run, (draw.normal(*shape), draw.normal(*shape)))


@sample("index along channels", "idiom")
def index(draw: Draw, shape: Shape) -> Case:
    def run(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        return x[:, places]

    return Case(run, (draw.normal(*shape), torch.arange(shape[1], device=draw.device).flip(0)))


@sample("index_select along channels", "idiom")
def index_select(draw: Draw, shape: Shape) -> Case:
    places = torch.arange(shape[1], device=draw.device).flip(0)
    return Case(torch.index_select, (draw.normal(*shape), 1, places))


@sample("softmax over channels", "idiom")
def softmax(draw: Draw, shape: Shape) -> Case:
    return Case(torch.softmax, (draw.normal(*shape), 1))


@sample("log_softmax over channels", "idiom")
def log_softmax(draw: Draw, shape: Shape) -> Case:
    return Case(torch.log_softmax, (draw.normal(*shape), 1))


@sample("pixel_shuffle", "module", dims=(2,))
def pixel_shuffle(draw: Draw, shape: Shape) -> Case:
    return Case(functional.pixel_shuffle, (draw.normal(*shape), 2))


@sample("pixel_unshuffle", "module", dims=(2,))
def pixel_unshuffle(draw: Draw, shape: Shape) -> Case:
    return Case(functional.pixel_unshuffle, (draw.normal(*shape), 2))


@sample("roll", "idiom")
def roll(draw: Draw, shape: Shape) -> Case:
    return Case(torch.roll, (draw.normal(*shape), (1,) * (len(shape) - 2), tuple(range(2, len(shape)))))


@sample("maximum over channels, kept as one", "idiom")
def channel_attention(draw: Draw, shape: Shape) -> Case:
    def run(x: torch.Tensor) -> torch.Tensor:
        return x * torch.cat([x.mean(1, keepdim=True), x.amax(1, keepdim=True)], 1).sum(1, keepdim=True).sigmoid()

    return Case(run, (draw.normal(*shape),))
