"""Copies between any strides against torch's own: formats, slices, shuffles, padding."""

from __future__ import annotations

import random

import pytest
import torch
from inference.running import by_every_candidate, request
from torch.nn import functional

import nhwc.inference.steps.copying  # noqa: F401 registers
from nhwc.inference.native import Activation
from nhwc.inference.operations import Copy, Fused
from nhwc.inference.steps.registry import candidates


def copied(x: torch.Tensor, output: torch.Tensor, operation: Copy = Copy(), threads: int = 2) -> torch.Tensor:  # noqa: B008
    [result] = by_every_candidate(request(operation, (x,), output, threads=threads), output).values()
    return result


@pytest.mark.parametrize("c", [1, 2, 3, 4, 5, 16, 17, 33, 64, 130, 1100])
@pytest.mark.parametrize("h", [1, 3, 9, 24])
def test_between_formats(c: int, h: int) -> None:
    planes = torch.randn(2, c, h, h + 2)
    rows = planes.contiguous(memory_format=torch.channels_last)
    wide = torch.full((2, h, h + 2, c + 7), -1.0)
    assert torch.equal(copied(planes, torch.empty_like(rows)), planes)
    assert torch.equal(copied(rows, torch.empty_like(planes)), planes)
    joined = wide[..., 3 : 3 + c].permute(0, 3, 1, 2)
    assert torch.equal(copied(planes, joined), planes)
    assert torch.equal(copied(joined, torch.empty_like(planes)), planes)
    assert torch.equal(copied(joined, torch.empty_like(rows)), planes)
    assert (wide[..., :3] == -1).all()
    assert (wide[..., 3 + c :] == -1).all()


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("groups", [2, 3, 4, 8, 29])
def test_channel_shuffles(groups: int, threads: int) -> None:
    x = torch.randn(2, 9, 7, groups * 29).permute(0, 3, 1, 2)
    view = x.view(2, groups, 29, 9, 7).transpose(1, 2)
    output = torch.empty(2, 9, 7, groups * 29).permute(0, 3, 1, 2)
    result = copied(view, output.view(2, 29, groups, 9, 7), threads=threads)
    assert torch.equal(result.reshape(2, -1, 9, 7), functional.channel_shuffle(x, groups))


@pytest.mark.parametrize("seed", [*range(30), *[pytest.param(s, marks=pytest.mark.slow) for s in range(30, 150)]])
def test_any_strides_with_padding(seed: int) -> None:
    draw = random.Random(seed)
    rank = draw.choice([3, 4, 4, 4, 5])
    shape = [draw.randint(1, 4), draw.randint(1, 67), *[draw.randint(1, 12) for _ in range(rank - 2)]]
    padding = tuple((draw.randint(-1, 3), draw.randint(0, 3)) for _ in shape[2:]) if draw.random() < 0.7 else ()
    x = _anyhow(shape, draw)
    ends = [each for pair in reversed(padding) for each in pair]
    expected = functional.pad(x, ends, value=1.5) if padding else x
    output = _anyhow(list(expected.shape), draw)
    assert torch.equal(copied(x, output, Copy(padding, 1.5), draw.choice([1, 2, 5])), expected)


def _anyhow(shape: list[int], draw: random.Random) -> torch.Tensor:
    """A part of a wider tensor whose dimensions lie in any order."""
    order = draw.sample(range(len(shape)), len(shape))
    spare = [draw.choice([0, 0, 3]) for _ in shape]
    memory = torch.randn([shape[each] + spare[each] for each in order])
    for place, each in enumerate(order):
        memory = memory.narrow(place, spare[each] // 2, shape[each])
    return memory.permute([order.index(each) for each in range(len(shape))])


def test_memory_around_a_padded_slice_is_untouched() -> None:
    x, memory = torch.randn(2, 5, 4, 3), torch.zeros(2, 8, 7, 9)
    output = memory[:, 1:7, 1:6, 2:7].permute(0, 3, 1, 2)
    expected = functional.pad(x, (1, 1, 1, 1), value=-2.0)
    assert torch.equal(copied(x, output, Copy(((1, 1), (1, 1)), -2.0)), expected)
    assert memory.sum().item() == pytest.approx(expected.sum().item(), abs=1e-4)
    memory[:, 1:7, 1:6, 2:7] = 0
    assert not memory.any()


def test_repeated_values_and_nothing_at_all() -> None:
    x = torch.randn(1, 6, 1, 1).expand(2, 6, 5, 4)
    assert torch.equal(copied(x, torch.empty(2, 6, 5, 4)), x)
    one = torch.randn(1).expand(3, 4)
    assert torch.equal(copied(one, torch.empty(3, 4)), one)
    assert copied(torch.empty(0, 3, 2, 2), torch.empty(0, 3, 2, 2)).shape == (0, 3, 2, 2)
    empty = torch.empty(2, 3, 0, 2)
    assert (copied(empty, torch.empty(2, 3, 2, 2), Copy(((1, 1), (0, 0)), 3.0)) == 3.0).all()


def test_what_does_not_fit_is_refused() -> None:
    x = torch.randn(2, 3, 4, 5)
    assert not candidates(request(Copy(), (x,), torch.empty(2, 3, 4, 6)))
    assert not candidates(request(Copy(((1, 1),)), (x,), torch.empty(2, 3, 4, 7)))
    assert not candidates(request(Copy(), (x,), x[:1].expand(2, 3, 4, 5)))
    assert not candidates(request(Copy(), (x,), torch.empty(2, 3, 4, 5), Fused(Activation.CLAMP)))
