"""Compositions that whole families of models are made of."""

from __future__ import annotations

import torch
from torch.nn import functional

from nhwc.ops.case import Case
from nhwc.ops.samples.registry import Draw, Shape, sample


@sample("flatten before Linear", "idiom")
def flatten_before_linear(draw: Draw, shape: Shape) -> Case:
    features = torch.Size(shape[1:]).numel()

    def run(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return functional.linear(x.flatten(1), weight)

    return Case(run, (draw.normal(*shape), draw.normal(4, features)))


@sample("global mean before Linear", "idiom")
def mean_before_linear(draw: Draw, shape: Shape) -> Case:
    def run(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return functional.linear(x.mean(tuple(range(2, x.dim()))), weight)

    return Case(run, (draw.normal(*shape), draw.normal(4, shape[1])))


@sample("squeeze-and-excitation", "idiom")
def squeeze_and_excitation(draw: Draw, shape: Shape) -> Case:
    space = tuple(range(2, len(shape)))

    def run(x: torch.Tensor, down: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        scale = functional.linear(functional.linear(x.mean(space), down).relu(), up).sigmoid()
        return x * scale.view(*scale.shape, *(1 for _ in space))

    return Case(run, (draw.normal(*shape), draw.normal(4, shape[1]), draw.normal(shape[1], 4)))


@sample("residual add and relu", "idiom")
def residual(draw: Draw, shape: Shape) -> Case:
    def run(x: torch.Tensor, skipped: torch.Tensor) -> torch.Tensor:
        return (x + skipped).relu()

    return Case(run, (draw.normal(*shape), draw.normal(*shape)))


@sample("FPN: upsample and add", "idiom", dims=(2,))
def upsample_and_add(draw: Draw, shape: Shape) -> Case:
    n, channels, height, width = shape

    def run(lateral: torch.Tensor, top: torch.Tensor) -> torch.Tensor:
        return lateral + functional.interpolate(top, size=lateral.shape[-2:], mode="nearest")

    return Case(run, (draw.normal(*shape), draw.normal(n, channels, max(1, height // 2), max(1, width // 2))))


@sample("tokens and back by flatten and transpose", "idiom")
def tokens_and_back(draw: Draw, shape: Shape) -> Case:
    def run(x: torch.Tensor) -> torch.Tensor:
        tokens = x.flatten(2).transpose(1, 2)
        return (tokens * 2.0).transpose(1, 2).reshape(x.shape)

    return Case(run, (draw.normal(*shape),))


@sample("window partition and back", "idiom", dims=(2,))
def window_partition(draw: Draw, shape: Shape) -> Case:
    def run(x: torch.Tensor) -> torch.Tensor:
        n, channels, height, width = x.shape
        rows = x.permute(0, 2, 3, 1).reshape(n, height // 2, 2, width // 2, 2, channels)
        windows = rows.transpose(2, 3).reshape(-1, 4, channels) * 2.0
        back = windows.reshape(n, height // 2, width // 2, 2, 2, channels).transpose(2, 3)
        return back.reshape(n, height, width, channels).permute(0, 3, 1, 2)

    return Case(run, (draw.normal(*shape),))


@sample("patch merging by strided slices", "idiom", dims=(2,))
def patch_merging(draw: Draw, shape: Shape) -> Case:
    def run(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x[:, :, i::2, j::2] for j in (0, 1) for i in (0, 1)], 1)

    return Case(run, (draw.normal(*shape),))


@sample("self-attention over pixels", "idiom", dims=(2,))
def attention(draw: Draw, shape: Shape) -> Case:
    def run(x: torch.Tensor) -> torch.Tensor:
        tokens = x.flatten(2).transpose(1, 2)
        return functional.scaled_dot_product_attention(tokens, tokens, tokens).transpose(1, 2).reshape(x.shape)

    return Case(run, (draw.normal(*shape),))


@sample("one picture of a batch, then unsqueeze", "idiom", dims=(2,))
def one_of_a_batch(draw: Draw, shape: Shape) -> Case:
    def run(x: torch.Tensor) -> torch.Tensor:
        return functional.max_pool2d(x[0].unsqueeze(0), 2)

    return Case(run, (draw.normal(*shape),))


@sample("unfold and fold", "idiom", dims=(2,))
def unfold_and_fold(draw: Draw, shape: Shape) -> Case:
    def run(x: torch.Tensor) -> torch.Tensor:
        return functional.fold(functional.unfold(x, 3, padding=1), x.shape[-2:], 3, padding=1)

    return Case(run, (draw.normal(*shape),))
