"""Winograd convolution: transforms exact in float64, every candidate against float64, and where it is not offered."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch
from inference.convolving import Case, errors
from inference.running import request

from nhwc.inference.native import Activation
from nhwc.inference.operations import Convolution
from nhwc.inference.steps import winograd

#: Greatest error of a convolution of up to 70 channels, over its greatest sum.
BOUNDS = {2: 2e-6, 4: 6e-6}


def check(case: Case) -> list[str]:
    found = {label: error for label, error in errors(case).items() if label.startswith("winograd")}
    for tile, bound in BOUNDS.items():
        of_tile = [error for label, error in found.items() if f"F({tile})" in label]
        assert max(of_tile, default=0.0) < bound, found
    return list(found)


@pytest.mark.parametrize("seed", [*range(10), *[pytest.param(s, marks=pytest.mark.slow) for s in range(10, 60)]])
def test_random_images(seed: int) -> None:
    torch.manual_seed(seed)
    choose = random.Random(seed)
    for _ in range(3):
        groups, padding = choose.choice([1, 1, 1, 2, 3]), choose.randint(0, 3)
        inputs, outputs = choose.randint(8, 67) * groups, choose.randint(8, 67) * groups
        least = max(1, 3 - 2 * padding)
        x = (choose.randint(0, 3), inputs, choose.randint(least, 33), choose.randint(least, 33))
        assert check(Case(x, outputs, padding=padding, groups=groups).varied(choose))


@pytest.mark.parametrize("outputs", [64, 150])
def test_schedules(outputs: int) -> None:
    """Blocks, with one panel at a time or all, and phases, whose products go over several runs of rows."""
    labels = check(Case((2, 300, 33, 31), outputs, addend="first", activation=Activation.CLAMP, threads=5))
    for kind in ("F(2) blocks", "F(2)", "F(4)", "blocks", "phases"):
        assert any(kind in label for label in labels), kind
    assert len({label.split("chunk=")[1] for label in labels}) > 1


@pytest.mark.parametrize("tile", [2, 4])
def test_weights_are_those_of_the_points(tile: int) -> None:
    """G w in float64 gives the convolution with the transforms of the usual formula, whatever the points."""
    points = torch.tensor(winograd.POINTS[tile], dtype=torch.float64)
    powers = points[:, None] ** torch.arange(tile + 2)
    every = torch.cat([powers, torch.eye(tile + 2, dtype=torch.float64)[-1:]])
    scale = torch.cat(
        [torch.stack([torch.prod(p - points[points != p]) for p in points]), torch.ones(1, dtype=torch.float64)]
    )
    forward = torch.linalg.inv(every).T * scale[:, None]
    if tile == 2:
        forward[0] *= -1
    back = torch.cat([powers[:, :tile], torch.eye(tile, dtype=torch.float64)[-1:]]).T
    signal, taps = torch.randn(tile + 2, dtype=torch.float64), torch.randn(3, dtype=torch.float64)
    result = back @ ((winograd.weight_matrix(tile) @ taps) * (forward @ signal))
    assert torch.allclose(result, signal.unfold(0, 3, 1) @ taps, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "change",
    [{"stride": (2, 2)}, {"dilation": (2, 2)}, {"transposed": True}, {"weight": torch.randn(16, 16, 5, 5)},
     {"weight": torch.randn(16, 4, 3, 3), "groups": 4}],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_not_offered(change: dict[str, object]) -> None:
    x = torch.randn(1, 16, 9, 9).contiguous(memory_format=torch.channels_last)
    plain = Convolution(torch.randn(16, 16, 3, 3), None, (1, 1), (1, 1), (1, 1))
    y = torch.empty_like(x)
    assert list(winograd.winograd(request(plain, [x], y)))
    assert not list(winograd.winograd(request(plain, [x], y, exact=True)))
    assert not list(winograd.winograd(request(replace(plain, **change), [x], y)))  # type: ignore[arg-type]
