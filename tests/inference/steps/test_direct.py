"""Direct convolution and the stem: every candidate against float64, and what they refuse."""

from __future__ import annotations

from random import Random

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 the usual name
from inference.running import by_every_candidate, request
from inference.steps.outcomes import outcomes, sliced

from nhwc.inference.native import Activation
from nhwc.inference.operations import Convolution, Fused
from nhwc.inference.steps.registry import candidates

BOUND = 3e-6
SEEDS = [*range(12), *[pytest.param(seed, marks=pytest.mark.slow) for seed in range(12, 150)]]


def convolved(conv: Convolution, x: torch.Tensor) -> torch.Tensor:
    run = F.conv2d if x.dim() == 4 else F.conv3d
    bias = None if conv.bias is None else conv.bias.double()
    return run(x.double(), conv.weight.double(), bias, conv.stride, conv.padding, conv.dilation, conv.groups)


def drawn(choose: Random, dimensions: int, inputs: int, outputs: int, groups: int = 1) -> tuple[Convolution, list[int]]:
    """A convolution and a size that it fits."""

    def each(choices: list[int]) -> tuple[int, ...]:
        return tuple(choose.choice(choices) for _ in range(dimensions))

    kernel, padding, dilation = each([1, 1, 2, 3, 3, 5]), each([0, 1, 2, 3]), each([1, 1, 2])
    least = [max(1, d * (k - 1) + 1 - 2 * p) for k, p, d in zip(kernel, padding, dilation, strict=True)]
    weight = torch.randn(outputs, inputs // groups, *kernel)
    bias = torch.randn(outputs) if choose.random() < 0.7 else None
    conv = Convolution(weight, bias, each([1, 2, 3]), padding, dilation, groups)
    return conv, [choose.randint(low, max(low, 33 if dimensions == 2 else 7)) for low in least]


@pytest.mark.parametrize("seed", SEEDS)
def test_random_convolutions(seed: int) -> None:
    torch.manual_seed(seed)
    choose = Random(seed)
    groups = choose.choice([1, 1, 2, 3])
    inputs, outputs = (choose.randint(1, 67) * groups for _ in range(2))
    conv, size = drawn(choose, choose.choice([2, 2, 3]), inputs, outputs, groups)
    x = sliced((choose.randint(0, 3), inputs, *size))[1]
    found = outcomes(conv, x, convolved(conv, x), choose)
    assert any(label.startswith("direct") for label in found)
    assert max(error for label, error in found.items() if label.startswith(("direct", "stem"))) < BOUND, found


@pytest.mark.parametrize("seed", SEEDS)
def test_random_stems(seed: int) -> None:
    """Few channels, as planes, as rows and as slices of rows."""
    torch.manual_seed(seed)
    choose = Random(seed)
    inputs = choose.randint(1, 4)
    conv, size = drawn(choose, choose.choice([2, 2, 3]), inputs, choose.randint(1, 67))
    dilation = (*conv.dilation[:-1], 1)
    conv = Convolution(conv.weight, conv.bias, conv.stride, conv.padding, dilation)
    shape = (choose.randint(0, 2), inputs, *size)
    x = torch.randn(shape) if choose.random() < 0.5 else sliced(shape)[1]
    found = outcomes(conv, x, convolved(conv, x), choose)
    stems = {label: error for label, error in found.items() if label.startswith("stem")}
    assert stems
    assert max(stems.values()) < BOUND, found


@pytest.mark.parametrize("width", [1, 3, 5])
def test_groups_narrower_than_a_vector(width: int) -> None:
    """They are multiplied together, as many as fill a vector and divide the groups."""
    torch.manual_seed(width)
    conv = Convolution(torch.randn(12 * width, 7, 3, 3), torch.randn(12 * width), (1, 1), (1, 1), (1, 1), 12)
    x = sliced((2, 84, 9, 8))[1]
    found = outcomes(conv, x, convolved(conv, x), Random(width))
    assert max(error for label, error in found.items() if label.startswith("direct")) < BOUND


def test_many_panels_rows_and_passes() -> None:
    """Every block of the work has a neighbour: pixels, panels, taps and parts of a tap."""
    torch.manual_seed(0)
    for channels, kernel in ((1100, 1), (130, 3)):
        conv = Convolution(torch.randn(300, channels, kernel, kernel), None, (1, 1), (1, 1), (1, 1))
        x = sliced((1, channels, 19, 23))[1]
        found = outcomes(conv, x, convolved(conv, x), Random(1))
        assert max(error for label, error in found.items() if label.startswith("direct")) < BOUND


def test_slopes_are_those_of_the_channels() -> None:
    torch.manual_seed(0)
    conv = Convolution(torch.randn(70, 20, 1, 1), torch.randn(70), (1, 1), (0, 0), (1, 1))
    x, y = sliced((2, 20, 5, 6))[1], sliced((2, 70, 5, 6))[1]
    slope = torch.rand(70)
    asked = request(conv, [x], y, Fused(Activation.PRELU, slope=slope))
    exact = F.prelu(convolved(conv, x), slope.double())
    for result in by_every_candidate(asked, y).values():
        torch.testing.assert_close(result.double(), exact, rtol=1e-4, atol=1e-4)


def test_nan_stays_through_a_bound() -> None:
    conv = Convolution(torch.ones(20, 3, 1, 1), None, (1, 1), (0, 0), (1, 1))
    x = torch.ones(1, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    x[0, 1, 2, 2] = float("nan")
    y = torch.empty(1, 20, 4, 4).contiguous(memory_format=torch.channels_last)
    for result in by_every_candidate(request(conv, [x], y, Fused(Activation.CLAMP, 0.0, 6.0)), y).values():
        assert result[0, :, 2, 2].isnan().all()
        assert result.isnan().sum() == 20


def test_planes_of_many_channels_are_refused() -> None:
    conv = Convolution(torch.randn(4, 5, 1, 1), None, (1, 1), (0, 0), (1, 1))
    planes, rows = torch.randn(1, 5, 3, 3), torch.empty(1, 4, 3, 3).contiguous(memory_format=torch.channels_last)
    assert not candidates(request(conv, [planes], rows))
    assert not candidates(
        request(conv, [planes.contiguous(memory_format=torch.channels_last)], torch.empty(1, 4, 3, 3))
    )


def test_an_addend_of_another_shape_is_refused() -> None:
    conv = Convolution(torch.randn(4, 5, 1, 1), None, (1, 1), (0, 0), (1, 1))
    x, y = sliced((1, 5, 3, 3))[1], sliced((1, 4, 3, 3))[1]
    found = candidates(request(conv, [x], y, addend=sliced((1, 4, 1, 1))[1]))
    assert not [each.label for each in found if each.label.startswith("direct")]
