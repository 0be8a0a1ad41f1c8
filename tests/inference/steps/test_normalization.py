"""Norms against torch in float64: groups, slices, activations, large means, rows of any number of dimensions."""

from __future__ import annotations

import random

import pytest
import torch
from inference.running import by_every_candidate, relative_error, request, run_step
from inference.steps.test_pooling import slice_of
from torch.nn import functional

import nhwc.inference.steps.normalization  # noqa: F401 registers
from nhwc.inference.native import Activation
from nhwc.inference.operations import Fused, Normalization
from nhwc.inference.steps.registry import candidates

NO_EPILOGUE = Fused()


def normalized(
    norm: Normalization, x: torch.Tensor, fused: Fused = NO_EPILOGUE, threads: int = 2, label: str = "norm_group"
) -> torch.Tensor:
    output, memory = slice_of(tuple(x.shape))
    before = memory.clone()
    results = by_every_candidate(request(norm, (x,), output, fused, threads=threads), output)
    assert list(results) == [label]
    assert torch.equal(memory[..., :2], before[..., :2])
    assert torch.equal(memory[..., -3:], before[..., -3:])
    return results[label]


@pytest.mark.parametrize("seed", [*range(30), *[pytest.param(s, marks=pytest.mark.slow) for s in range(30, 150)]])
def test_groups(seed: int) -> None:
    draw = random.Random(seed)
    groups = draw.choice([1, 1, 2, 3, 8])
    channels = groups * draw.randint(1, 67 // groups)
    spatial = draw.choice([1, 2, 2, 3])
    x, _ = slice_of(
        (draw.randint(1, 6), channels, *[draw.randint(1, 33 if spatial < 3 else 9) for _ in range(spatial)])
    )
    x += draw.choice([0.0, 30.0])
    kind = draw.choice(["group", "instance"])
    groups = channels if kind == "instance" else groups
    weight, bias = [torch.randn(channels) if draw.random() < 0.7 else None for _ in range(2)]
    norm = Normalization("instance" if kind == "instance" else "group", groups, weight, bias, 1e-5)
    if x[0, 0].numel() * channels // groups == 1:
        return  # a group of one value has no spread, and torch says so
    wide = [None if each is None else each.double() for each in (weight, bias)]
    exact = functional.group_norm(x.double(), groups, *wide, 1e-5)
    found = normalized(norm, x, threads=draw.choice([1, 2, 5]))
    assert relative_error(found, exact) < (1e-6 if x.mean() < 20 else 1e-5)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_pictures_that_are_shared_out(threads: int) -> None:
    x, _ = slice_of((1, 96, 61, 43))
    x += 100
    exact = functional.group_norm(x.double(), 8)
    found = normalized(Normalization("group", 8, None, None, 1e-5), x, threads=threads)
    assert relative_error(found, exact) < 3e-6
    assert torch.equal(found, normalized(Normalization("group", 8, None, None, 1e-5), x, threads=1))


def test_activations_follow() -> None:
    x, _ = slice_of((2, 21, 9, 7))
    slope, norm = torch.rand(21), Normalization("group", 3, torch.randn(21), torch.randn(21), 1e-5)
    plain = functional.group_norm(x, 3, norm.weight, norm.bias)
    for fused, exact in (
        (Fused(Activation.SILU), functional.silu(plain)),
        (Fused(Activation.CLAMP, 0.0, float("inf")), plain.relu()),
        (Fused(Activation.PRELU, slope=slope), functional.prelu(plain, slope)),
    ):
        assert torch.allclose(normalized(norm, x, fused), exact, atol=3e-6)


@pytest.mark.parametrize("c", [1, 3, 16, 31, 67, 96, 1500])
@pytest.mark.parametrize("affine", [(False, False), (True, False), (True, True)])
def test_layers(c: int, affine: tuple[bool, bool]) -> None:
    weight, bias = [torch.randn(c) if each else None for each in affine]
    norm = Normalization("layer", 1, weight, bias, 1e-6)
    wide = [None if each is None else each.double() for each in (weight, bias)]
    for shape in ((7, c), (2, 19, c), (2, 5, 3, c), (1, 3, 2, 4, c)):
        tokens = torch.randn(shape) + 10
        output = torch.empty_like(tokens)
        found = by_every_candidate(request(norm, (tokens,), output), output)["norm_layer"]
        exact = functional.layer_norm(tokens.double(), (c,), *wide, 1e-6)
        assert relative_error(found, exact) < 2e-5 if c > 1 else 1.0
    rows, _ = slice_of((2, c, 5, 3))
    exact = functional.layer_norm(rows.movedim(1, -1).double(), (c,), *wide, 1e-6).movedim(-1, 1)
    assert relative_error(normalized(norm, rows, label="norm_layer"), exact) < 2e-6


def test_nan_and_infinities_spread_over_their_group_alone() -> None:
    x, _ = slice_of((2, 12, 5, 5))
    x[0, 1, 2, 2], x[1, 11, 0, 0] = torch.nan, torch.inf
    found = normalized(Normalization("group", 4, None, None, 1e-5), x)
    assert torch.equal(found.isnan(), functional.group_norm(x, 4).isnan())
    rows = normalized(Normalization("layer", 1, None, None, 1e-5), x, label="norm_layer")
    assert torch.equal(rows.isnan(), functional.layer_norm(x.movedim(1, -1), (12,)).movedim(-1, 1).isnan())


def test_in_place_and_no_picture_at_all() -> None:
    for norm in (Normalization("group", 3, None, None, 1e-5), Normalization("layer", 1, None, None, 1e-5)):
        x, _ = slice_of((2, 9, 5, 5))
        expected = normalized(norm, x, label="norm_layer" if norm.kind == "layer" else "norm_group")
        [candidate] = candidates(request(norm, (x,), x))
        run_step(candidate.build())
        assert torch.equal(x, expected)
        none = torch.empty(0, 5, 5, 9).permute(0, 3, 1, 2)
        assert len(by_every_candidate(request(norm, (none,), none), none)) == 1


def test_what_does_not_fit_is_refused() -> None:
    planes = torch.randn(2, 6, 5, 5)
    rows = planes.contiguous(memory_format=torch.channels_last)
    group, layer = Normalization("group", 3, None, None, 1e-5), Normalization("layer", 1, None, None, 1e-5)
    assert not candidates(request(group, (planes,), planes))
    assert not candidates(request(group, (rows,), rows, addend=rows))
    assert not candidates(request(layer, (planes,), rows))
    assert not candidates(request(layer, (rows,), rows, Fused(Activation.CLAMP)))
