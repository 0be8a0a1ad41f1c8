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

#: "The like" of clone, to, cuda and float: every method that casts or moves.
CASTING: dict[str, Function] = {
    "clone": torch.clone,
    "to a dtype": lambda x: x.to(torch.float64),
    "to a device": lambda x: x.to("cpu", copy=True),
    "to another device": lambda x: x.to("meta"),
    "to the format of another": lambda x: x.to(torch.zeros((), dtype=torch.float64)),
    "type": lambda x: x.type(torch.float64),
    "type_as": lambda x: x.type_as(torch.zeros((), dtype=torch.float64)),
    "cpu": lambda x: x.cpu(),
    **{
        name: lambda x, name=name: getattr(x.double(), name)()
        for name in "float double half bfloat16 int long short char byte bool cfloat cdouble".split()
    },
}
LIKE: dict[str, Function] = {
    "empty_like": torch.empty_like,
    "zeros_like": torch.zeros_like,
    "ones_like": torch.ones_like,
    "full_like": lambda x: torch.full_like(x, 2.0),
    "rand_like": torch.rand_like,
    "randn_like": torch.randn_like,
    "randint_like": lambda x: torch.randint_like(x, 9),
}
_UNARY = """abs acos angle asin atan bitwise_not ceil conj_physical cos cosh deg2rad digamma erf erfc erfinv exp exp2
expm1 floor frac i0 isfinite isinf isnan isneginf isposinf isreal lgamma log log10 log1p log2 logical_not logit
nan_to_num neg positive rad2deg reciprocal relu round rsqrt sgn sigmoid sign signbit sin sinc sinh sqrt square tan tanh
trunc""".split()
_BINARY = """add atan2 copysign div eq floor_divide fmax fmin fmod ge gt heaviside hypot le logaddexp logaddexp2
logical_and logical_or logical_xor lt maximum minimum mul ne nextafter pow remainder sub true_divide xlogy""".split()
_ACTIVATIONS = """celu elu gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu mish relu relu6 selu
silu softplus softshrink softsign tanhshrink""".split()
_WHOLE = {"bitwise_not"}

POINTWISE: dict[str, Function] = {
    **{name: lambda x, name=name: getattr(torch, name)(x.long() if name in _WHOLE else x) for name in _UNARY},
    **{name: lambda x, name=name: getattr(torch, name)(x, x) for name in _BINARY},
    **{name: lambda x, name=name: getattr(functional, name)(x) for name in _ACTIVATIONS},
    "add a number": lambda x: x + 1.0,
    "where": lambda x: torch.where(x > 0, x, -x),
    "clamp": lambda x: x.clamp(0.0, 1.0),
    "lerp": lambda x: torch.lerp(x, x, 0.5),
    "addcmul": lambda x: torch.addcmul(x, x, x),
    "addcdiv": lambda x: torch.addcdiv(x, x, x + 2.0),
    "in place": lambda x: x.mul_(2.0),
    "per channel": lambda x: x * torch.ones(x.shape[1], *(1 for _ in x.shape[2:])),
}
#: Pointwise, and contiguous all the same, in torch 2.11 to 2.14: the statement does not hold for them.
EXCEPTIONS: dict[str, Function] = {
    "logsigmoid": functional.logsigmoid,
    "masked_fill": lambda x: x.masked_fill(x > 0, 0.0),
}
PRESERVING = {**CASTING, **LIKE, **POINTWISE}


def picture(memory_format: str) -> torch.Tensor:
    """Numbers between 0.1 and 0.9, in the domain of every operator above."""
    return torch.empty(SHAPES[memory_format]).uniform_(0.1, 0.9).to(memory_format=getattr(torch, memory_format))


@pytest.mark.parametrize("memory_format", SHAPES)
@pytest.mark.parametrize("name", PRESERVING)
def test_what_preserves_the_format(name: str, memory_format: str) -> None:
    x = picture(memory_format)
    result = PRESERVING[name](x)
    assert result.stride() == strides_for(x.shape, memory_format)


@pytest.mark.parametrize("name", PRESERVING)
def test_what_preserves_channels_last_preserves_contiguous_too(name: str) -> None:
    x = picture("channels_last").contiguous()
    assert PRESERVING[name](x).stride() == strides_for(x.shape, "contiguous")


@pytest.mark.parametrize("memory_format", SHAPES)
@pytest.mark.parametrize("name", EXCEPTIONS)
def test_pointwise_operators_that_lose_the_format_are_known(name: str, memory_format: str) -> None:
    x = picture(memory_format)
    assert EXCEPTIONS[name](x).stride() == strides_for(x.shape, "contiguous")


def test_every_like_function_of_this_torch_is_among_them() -> None:
    assert set(LIKE) == {name for name in dir(torch) if name.endswith("_like") and not name.startswith("_")}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("memory_format", SHAPES)
def test_cuda_preserves_the_format(memory_format: str) -> None:
    x = picture(memory_format)
    assert x.cuda().stride() == x.cuda().cpu().stride() == strides_for(x.shape, memory_format)


CONVOLUTIONS: dict[str, tuple[tuple[int, ...], dict[str, int]]] = {
    "3 wide": ((16, 8, 3, 3), {"padding": 1}),
    "1 wide": ((16, 8, 1, 1), {}),
    "stride 2": ((16, 8, 3, 3), {"stride": 2}),
    "dilation 2": ((16, 8, 3, 3), {"dilation": 2}),
    "depthwise": ((8, 1, 3, 3), {"groups": 8}),
    "grouped": ((16, 4, 3, 3), {"groups": 2}),
}
FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize(("of_input", "of_weight"), list(itertools.product(FORMATS, FORMATS)))
def test_channels_last_dominates_in_a_convolution(of_input: str, of_weight: str, name: str, dtype: torch.dtype) -> None:
    shape, options = CONVOLUTIONS[name]
    x = torch.randn(2, 8, 12, 12, dtype=dtype).contiguous(memory_format=FORMATS[of_input])
    weight = torch.randn(shape, dtype=dtype).contiguous(memory_format=FORMATS[of_weight])
    result = functional.conv2d(x, weight, **options)
    # a weight that is 1x1, or of one channel, has a format in name only: its strides fit both
    told = [tensor for tensor in (x, weight) if not tensor.is_contiguous()]
    expected = "channels_last" if told else "contiguous"
    assert result.stride() == strides_for(result.shape, expected)


@pytest.mark.parametrize(("of_input", "of_weight"), list(itertools.product(FORMATS, FORMATS)))
def test_channels_last_dominates_in_a_transposed_convolution(of_input: str, of_weight: str) -> None:
    x = torch.randn(2, 8, 12, 12).contiguous(memory_format=FORMATS[of_input])
    weight = torch.randn(8, 16, 2, 2).contiguous(memory_format=FORMATS[of_weight])
    result = functional.conv_transpose2d(x, weight, stride=2)
    expected = "channels_last" if "channels_last" in (of_input, of_weight) else "contiguous"
    assert result.stride() == strides_for(result.shape, expected)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("memory_format", SHAPES)
def test_batch_norm_keeps_the_format_of_its_input(memory_format: str, training: bool) -> None:
    x = picture(memory_format)
    for given, expected in ((x, memory_format), (x.contiguous(), "contiguous")):
        result = functional.batch_norm(given, torch.zeros(8), torch.ones(8), training=training)
        assert result.stride() == strides_for(x.shape, expected)


def test_both_checks_answer_yes_for_an_ambiguous_tensor() -> None:
    for shape in ((4, 1, 6, 6), (4, 8, 1, 1)):
        x = torch.randn(shape)
        assert x.is_contiguous()
        assert x.is_contiguous(memory_format=torch.channels_last)
