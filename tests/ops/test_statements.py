"""What PyTorch's tutorial states on memory formats, run on the installed build: what preserves channels last, and which
operand of a convolution dominates."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from nhwc.strides import strides_for

Function = Callable[[torch.Tensor], torch.Tensor]

SHAPES = {"channels_last": (2, 8, 6, 5), "channels_last_3d": (2, 8, 4, 6, 5)}

PRESERVING: dict[str, Function] = {
    "clone": torch.clone,
    "to a dtype": lambda x: x.to(torch.float64),
    "to a device": lambda x: x.to("cpu", copy=True),
    "float": lambda x: x.double().float(),
    "half": lambda x: x.half(),
    "bfloat16": lambda x: x.bfloat16(),
    "type": lambda x: x.type(torch.float64),
    "empty_like": torch.empty_like,
    "zeros_like": torch.zeros_like,
    "ones_like": torch.ones_like,
    "full_like": lambda x: torch.full_like(x, 2.0),
    "rand_like": torch.rand_like,
    "randn_like": torch.randn_like,
    "randint_like": lambda x: torch.randint_like(x, 9),
    "add": lambda x: x + 1.0,
    "multiply": lambda x: x * x,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "where": lambda x: torch.where(x > 0, x, -x),
    "clamp": lambda x: x.clamp(0.0, 1.0),
    "in place": lambda x: x.mul_(2.0),
    "per channel": lambda x: x * torch.ones(x.shape[1], *(1 for _ in x.shape[2:])),
    "comparison": lambda x: x > 0,
}


def picture(memory_format: str) -> torch.Tensor:
    return torch.randn(SHAPES[memory_format]).to(memory_format=getattr(torch, memory_format))


@pytest.mark.parametrize("memory_format", SHAPES)
@pytest.mark.parametrize("name", PRESERVING)
def test_what_preserves_the_format(name: str, memory_format: str) -> None:
    x = picture(memory_format)
    result = PRESERVING[name](x)
    assert result.stride() == strides_for(x.shape, memory_format)


@pytest.mark.parametrize("name", PRESERVING)
def test_what_preserves_channels_last_preserves_contiguous_too(name: str) -> None:
    x = torch.randn(SHAPES["channels_last"])
    assert PRESERVING[name](x).stride() == strides_for(x.shape, "contiguous")


CONVOLUTIONS: dict[str, tuple[tuple[int, ...], dict[str, int]]] = {
    "3 wide": ((16, 8, 3, 3), {"padding": 1}),
    "1 wide": ((16, 8, 1, 1), {}),
    "stride 2": ((16, 8, 3, 3), {"stride": 2}),
    "depthwise": ((8, 1, 3, 3), {"groups": 8}),
    "grouped": ((16, 4, 3, 3), {"groups": 2}),
}
FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize(("of_input", "of_weight"), list(itertools.product(FORMATS, FORMATS)))
def test_channels_last_dominates_in_a_convolution(of_input: str, of_weight: str, name: str) -> None:
    shape, options = CONVOLUTIONS[name]
    x = torch.randn(2, 8, 12, 12).contiguous(memory_format=FORMATS[of_input])
    weight = torch.randn(shape).contiguous(memory_format=FORMATS[of_weight])
    result = functional.conv2d(x, weight, **options)
    # a weight that is 1x1, or of one channel, has a format in name only: its strides fit both
    told = [tensor for tensor in (x, weight) if not tensor.is_contiguous()]
    expected = "channels_last" if told else "contiguous"
    assert result.stride() == strides_for(result.shape, expected)


def test_batch_norm_keeps_the_format_of_its_input() -> None:
    for memory_format in SHAPES:
        x = picture(memory_format)
        result = functional.batch_norm(x, torch.zeros(8), torch.ones(8), training=True)
        assert result.stride() == strides_for(x.shape, memory_format)


def test_both_checks_answer_yes_for_an_ambiguous_tensor() -> None:
    for shape in ((4, 1, 6, 6), (4, 8, 1, 1)):
        x = torch.randn(shape)
        assert x.is_contiguous()
        assert x.is_contiguous(memory_format=torch.channels_last)
