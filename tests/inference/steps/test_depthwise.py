"""Depthwise convolution: every candidate against float64, on slices of wider buffers, whatever the epilogue."""

from __future__ import annotations

import random

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 the usual name
from inference.running import by_every_candidate, relative_error, request

from nhwc.inference.native import Activation
from nhwc.inference.operations import Convolution, Fused
from nhwc.inference.steps import depthwise

ACTIVATIONS = {
    Activation.NONE: lambda t: t,
    Activation.CLAMP: lambda t: t.clamp(0, 6),
    Activation.SILU: F.silu,
}
UNTOUCHED = 7.0


def sliced(shape: tuple[int, ...], fill: float | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """A buffer with five channels more, and the channels of it that have the shape."""
    order = (0, *range(2, len(shape)), 1)
    wide = [shape[i] for i in order[:-1]] + [shape[1] + 5]
    buffer = torch.randn(wide) if fill is None else torch.full(wide, fill)
    return buffer, buffer[..., 2 : 2 + shape[1]].permute(0, len(shape) - 1, *range(1, len(shape) - 1))


def check(
    x_shape: tuple[int, ...],
    weight_shape: tuple[int, ...],
    stride: int,
    padding: int,
    dilation: int,
    *,
    bias: bool,
    addend: str,
    activation: Activation,
    threads: int,
) -> list[str]:
    """Compare with float64, and the memory beside the slice with what it was; the candidates' labels."""
    spatial = len(x_shape) - 2
    convolve = F.conv2d if spatial == 2 else F.conv3d
    _, x = sliced(x_shape)
    weight = torch.randn(weight_shape)
    bias_values = torch.randn(weight_shape[0]) if bias else None
    exact = convolve(
        x.double(),
        weight.double(),
        None if bias_values is None else bias_values.double(),
        stride,
        padding,
        dilation,
        x_shape[1],
    )
    buffer, y = sliced(tuple(exact.shape), UNTOUCHED)
    added = sliced(tuple(exact.shape))[1] if addend else None
    fused = Fused(activation, 0.0, 6.0, addend_last=addend == "last")
    if added is not None and addend == "first":
        exact = exact + added.double()
    exact = ACTIVATIONS[activation](exact)
    if added is not None and addend == "last":
        exact = exact + added.double()
    operation = Convolution(
        weight, bias_values, (stride,) * spatial, (padding,) * spatial, (dilation,) * spatial, x_shape[1]
    )
    results = by_every_candidate(request(operation, [x], y, fused, added, threads=threads), y)
    for label, result in results.items():
        if result.numel():
            assert relative_error(result, exact) < 3e-6, label
    assert (buffer[..., :2] == UNTOUCHED).all()
    assert (buffer[..., -3:] == UNTOUCHED).all()
    return list(results)


@pytest.mark.parametrize("seed", [*range(12), *[pytest.param(s, marks=pytest.mark.slow) for s in range(12, 60)]])
def test_random_images(seed: int) -> None:
    torch.manual_seed(seed)
    choose = random.Random(seed)
    for _ in range(4):
        kernel, dilation = choose.choice([1, 2, 3, 3, 3, 4, 5, 5, 7, 7]), choose.choice([1, 1, 1, 2])
        channels, least = choose.randint(1, 67), dilation * (kernel - 1) + 1
        padding = choose.randint(0, kernel)
        size = [choose.randint(max(1, least - 2 * padding), 33) for _ in range(2)]
        labels = check(
            (choose.randint(0, 3), channels, *size),
            (channels, 1, kernel, kernel),
            choose.choice([1, 1, 2, 2, 3]),
            padding,
            dilation,
            bias=choose.random() < 0.7,
            addend=choose.choice(["", "first", "last"]),
            activation=choose.choice(list(ACTIVATIONS)),
            threads=choose.choice([1, 2, 5]),
        )
        assert "depthwise general" in labels


@pytest.mark.parametrize("multiplier", [2, 3])
@pytest.mark.parametrize("channels", [1, 5, 19])
def test_several_outputs_per_channel(channels: int, multiplier: int) -> None:
    labels = check(
        (2, channels, 9, 8),
        (channels * multiplier, 1, 3, 3),
        1,
        1,
        1,
        bias=True,
        addend="first",
        activation=Activation.CLAMP,
        threads=2,
    )
    assert labels == ["depthwise general"]


@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 2)])
def test_volumes(stride: int, dilation: int) -> None:
    check(
        (2, 37, 6, 7, 9),
        (37, 1, 3, 3, 3),
        stride,
        1,
        dilation,
        bias=True,
        addend="last",
        activation=Activation.SILU,
        threads=5,
    )


@pytest.mark.parametrize(("kernel", "stride", "choices"), [(3, 1, 3), (3, 2, 2), (5, 1, 6), (7, 2, 4)])
def test_choices(kernel: int, stride: int, choices: int) -> None:
    """One block of all channels at 3x3; at wider kernels blocks of 32 as well."""
    labels = check(
        (1, 67, 33, 14),
        (67, 1, kernel, kernel),
        stride,
        kernel // 2,
        1,
        bias=True,
        addend="",
        activation=Activation.CLAMP,
        threads=2,
    )
    assert len(labels) == choices + 1


def test_nothing_for_other_convolutions() -> None:
    x, y = torch.randn(1, 4, 5, 5), torch.empty(1, 4, 5, 5)
    for groups in (1, 2):
        weight = torch.randn(4, 4 // groups, 3, 3)
        operation = Convolution(weight, None, (1, 1), (1, 1), (1, 1), groups)
        assert not list(depthwise.depthwise(request(operation, [x], y)))


def test_a_nan_reaches_the_windows_that_hold_it_and_no_others() -> None:
    x = torch.zeros(1, 16, 9, 9).contiguous(memory_format=torch.channels_last)
    x[0, 3, 4, 4] = float("nan")
    y = torch.empty_like(x)
    operation = Convolution(torch.ones(16, 1, 3, 3), None, (1, 1), (1, 1), (1, 1), 16)
    fused = Fused(Activation.CLAMP, 0.0, float("inf"))
    for result in by_every_candidate(request(operation, [x], y, fused), y).values():
        assert result[0, 3, 3:6, 3:6].isnan().all()
        assert result.isnan().sum() == 9
