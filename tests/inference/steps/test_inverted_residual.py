"""Inverted residuals: every candidate against the convolutions one after the other in float64."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 the usual name
from inference.convolving import ACTIVATIONS
from inference.running import by_every_candidate, relative_error, request

from nhwc.inference.native import Activation
from nhwc.inference.operations import Convolution, Fused, InvertedResidual
from nhwc.inference.steps import inverted_residual

UNTOUCHED = 7.0


def pointwise(inputs: int, outputs: int) -> Convolution:
    return Convolution(torch.randn(outputs, inputs, 1, 1) / inputs**0.5, torch.randn(outputs), (1, 1), (0, 0), (1, 1))


def deep(channels: int, kernel: int, stride: int, padding: int) -> Convolution:
    weight = torch.randn(channels, 1, kernel, kernel) / kernel
    return Convolution(weight, torch.randn(channels), (stride,) * 2, (padding,) * 2, (1, 1), channels)


def expected(operation: InvertedResidual, x: torch.Tensor, fused: Fused, addend: torch.Tensor | None) -> torch.Tensor:
    result = x.double()
    convs = [each for each in (operation.expand, operation.depthwise, operation.project) if each is not None]
    for conv, inner in zip(convs, [*operation.inner, None], strict=True):
        bias = None if conv.bias is None else conv.bias.double()
        result = F.conv2d(result, conv.weight.double(), bias, conv.stride, conv.padding, 1, conv.groups)
        if inner is not None:
            result = ACTIVATIONS[inner.activation](result)
    if addend is not None and not fused.addend_last:
        result = result + addend.double()
    result = ACTIVATIONS[fused.activation](result)
    return result + addend.double() if addend is not None and fused.addend_last else result


def check(operation: InvertedResidual, size: tuple[int, int, int], choose: random.Random) -> int:
    """With an epilogue and threads by chance, from a slice into a slice; the number of candidates."""
    batch, height, width = size
    first = operation.expand.weight.shape[1] if operation.expand else operation.depthwise.groups
    x = torch.randn(batch, height, width, first + 5)[..., 2 : 2 + first].movedim(-1, 1)
    fused = Fused(choose.choice(list(ACTIVATIONS)), 0.0, 6.0, addend_last=choose.random() < 0.5)
    shape = expected(operation, x, Fused(), None).shape
    addend = torch.randn(batch, *shape[2:], shape[1] + 1)[..., :-1].movedim(-1, 1) if choose.random() < 0.6 else None
    buffer = torch.full((batch, *shape[2:], shape[1] + 3), UNTOUCHED)
    y = buffer[..., 1:-2].movedim(-1, 1)
    results = by_every_candidate(request(operation, [x], y, fused, addend, threads=choose.choice([1, 2, 5])), y)
    exact = expected(operation, x, fused, addend)
    for label, result in results.items():
        assert result.numel() == 0 or relative_error(result, exact) < 3e-6, label
    assert (buffer[..., 0] == UNTOUCHED).all()
    assert (buffer[..., -2:] == UNTOUCHED).all()
    return len(results)


@pytest.mark.parametrize("seed", [*range(6), *[pytest.param(s, marks=pytest.mark.slow) for s in range(6, 60)]])
def test_random_images(seed: int) -> None:
    torch.manual_seed(seed)
    choose = random.Random(seed)
    channels, kernel = choose.randint(1, 67), choose.choice([3, 5, 7])
    inner = [Fused(choose.choice(list(ACTIVATIONS)), 0.0, 6.0) for _ in range(2)]
    whole = InvertedResidual(
        pointwise(choose.randint(1, 40), channels),
        deep(channels, kernel, choose.choice([1, 2]), choose.randint(0, kernel // 2)),
        pointwise(channels, choose.randint(1, 40)),
        tuple(inner),
    )
    size = (choose.randint(0, 3), choose.randint(kernel, 33), choose.randint(kernel, 33))
    for operation in (
        whole,
        replace(whole, expand=None, inner=tuple(inner[1:])),
        replace(whole, project=None, inner=tuple(inner[:1])),
    ):
        assert check(operation, size, choose) >= 2


def test_not_offered() -> None:
    x = torch.randn(1, 8, 9, 9).contiguous(memory_format=torch.channels_last)
    whole = InvertedResidual(pointwise(8, 24), deep(24, 3, 1, 1), pointwise(24, 8), (Fused(), Fused()))
    strided = replace(pointwise(8, 24), stride=(2, 2))
    for operation, offered in (
        (whole, True),
        (replace(whole, expand=strided), False),
        (replace(whole, depthwise=replace(whole.depthwise, dilation=(2, 2))), False),
        (replace(whole, depthwise=deep(24, 9, 1, 4)), False),
        (replace(whole, depthwise=Convolution(torch.randn(24, 2, 3, 3), None, (1, 1), (1, 1), (1, 1), 12)), False),
        (InvertedResidual(None, deep(8, 3, 1, 1), None, ()), False),
    ):
        asked = request(operation, [x], torch.empty_like(x), Fused(Activation.NONE))
        assert bool(list(inverted_residual.inverted_residual(asked))) == offered, operation
