"""Every importer: the operator becomes an operation of our own and gives torch's numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from inference.engines import assert_right, fast, kinds_of
from torch import nn


class Of(nn.Module):
    """A function as a module in evaluation mode."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function
        self.eval()

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        return self.function(*args)


def picture(*shape: int) -> torch.Tensor:
    return torch.randn(*(shape or (2, 6, 9, 7)), generator=torch.Generator().manual_seed(1))


ACTIVATIONS = {
    "relu": F.relu,
    "relu6": F.relu6,
    "hardtanh": lambda x: F.hardtanh(x, -0.5, 0.25),
    "clamp": lambda x: x.clamp(max=0.5),
    "clamp_min": lambda x: x.clamp_min(-0.1),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "silu": F.silu,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "sigmoid": torch.sigmoid,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "tanh": torch.tanh,
    "elu": lambda x: F.elu(x, 0.7),
    "mish": F.mish,
    "softplus": F.softplus,
    "exp": torch.exp,
    "abs": torch.abs,
    "neg": torch.neg,
    "erf": torch.erf,
    "square": torch.square,
    "power": lambda x: x.abs() ** 1.5,
}
ARITHMETIC = {
    "add a number": lambda x: x + 1.5,
    "subtract from a number": lambda x: 1 - x,
    "divide by a number": lambda x: x / 3,
    "scale channels": lambda x: x * torch.arange(1.0, 7.0).view(6, 1, 1),
    "divide by channels": lambda x: x / torch.arange(1.0, 7.0).view(6, 1, 1),
    "subtract from channels": lambda x: torch.arange(1.0, 7.0).view(6, 1, 1) - x,
    "add a map": lambda x: x + torch.arange(63.0).view(9, 7),
    "gate": lambda x: x * x.mean((2, 3), keepdim=True).sigmoid(),
    "maximum": lambda x: torch.maximum(x, x.flip(0)),
    "itself": lambda x: x + x,
    "clamped sum": lambda x: (x + x * 2).relu(),
}
POOLS = {
    "maximum pool": lambda x: F.max_pool2d(x, 3, 2, 1),
    "ceil": lambda x: F.max_pool2d(x, 2, 2, ceil_mode=True),
    "dilated": lambda x: F.max_pool2d(x, 2, 1, dilation=2),
    "average": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "average without padding": lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    "average ceil": lambda x: F.avg_pool2d(x, 2, 2, ceil_mode=True),
    "divisor": lambda x: F.avg_pool2d(x, 2, divisor_override=3),
    "adaptive average": lambda x: F.adaptive_avg_pool2d(x, (4, 3)),
    "adaptive maximum": lambda x: F.adaptive_max_pool2d(x, 3),
    "global": lambda x: F.adaptive_avg_pool2d(x, 1),
    "mean": lambda x: x.mean((2, 3)),
    "mean kept": lambda x: x.mean((-1, -2), keepdim=True),
}
RESAMPLING = {
    "nearest": lambda x: F.interpolate(x, scale_factor=2),
    "nearest to a size": lambda x: F.interpolate(x, size=(11, 3)),
    "bilinear": lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear"),
    "bilinear by corners": lambda x: F.interpolate(x, size=(20, 13), mode="bilinear", align_corners=True),
}
SHAPES = {
    "cat": lambda x: torch.cat([x, x * 2], 1),
    "cat of rows": lambda x: torch.cat([x.relu(), x], 2),
    "stack": lambda x: torch.stack([x.relu(), x], 1),
    "pad": lambda x: F.pad(x, (1, 2, 0, 3)),
    "pad with a number": lambda x: F.pad(x, (1, 1, 1, 1), value=2.0) + 1,
    "pad pixels of the last but one": lambda x: F.pad(x.permute(0, 2, 3, 1), (0, 0, 1, 0, 0, 2)) + 1,
    "roll": lambda x: x.roll((-2, 3), (2, -1)) + 1,
    "chunk": lambda x: torch.cat(x.chunk(2, 1)[::-1], 1),
    "split": lambda x: x.split([1, 5], 1)[1] * 2,
    "unbind": lambda x: x.unbind(0)[1] + 1,
    "shuffle": lambda x: x.view(2, 2, 3, 9, 7).transpose(1, 2).reshape(2, 6, 9, 7) + 1,
    "flatten": lambda x: x.flatten(1) + 1,
    "permute": lambda x: x.permute(0, 2, 3, 1) * 2,
    "reshape of a permutation": lambda x: x.permute(2, 0, 3, 1).reshape(9, -1) * 2,
    "expand": lambda x: x[:, :1].expand(2, 6, 9, 7) + x,
    "step": lambda x: x[:, :, ::2, 1::3] + 1,
    "squeeze": lambda x: x[:, :1].squeeze(1) + 1,
    "unsqueeze": lambda x: x.unsqueeze(2) + 1,
    "identity": lambda x: F.dropout(x, 0.5, training=False).contiguous().clone() + 1,
}


def numbers(like: torch.Tensor) -> torch.Tensor:
    return torch.arange(6, dtype=like.dtype)


ROWS = {
    "layer norm": lambda x: F.layer_norm(x.permute(0, 2, 3, 1), (6,), numbers(x), numbers(x) + 1),
    "group norm": lambda x: F.group_norm(x, 3, numbers(x), numbers(x) + 1),
    "instance norm": lambda x: F.instance_norm(x),
    "softmax of channels": lambda x: x.softmax(1),
    "softmax of columns": lambda x: x.softmax(-1),
    "log softmax": lambda x: x.log_softmax(2),
}
CASES = {**ACTIVATIONS, **ARITHMETIC, **POOLS, **RESAMPLING, **SHAPES, **ROWS}
BY_TORCH = {"maximum": {"aten.flip.default"}}


@pytest.mark.parametrize("name", CASES)
def test_an_operator_is_ours_and_right(name: str) -> None:
    model = Of(CASES[name])
    calls = {kind for kind in kinds_of(model, picture()) if kind.startswith("aten.")}
    assert calls == BY_TORCH.get(name, set())
    assert_right(model, picture())


@pytest.mark.parametrize("contiguous", [True, False])
@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(6, 10, 3, padding=1),
        nn.Conv2d(6, 9, (3, 2), 2, (2, 1), (1, 2), groups=3, bias=False),
        nn.Conv2d(6, 8, 3, padding="same"),
        nn.Conv2d(6, 6, 5, padding=2, groups=6),
        nn.ConvTranspose2d(6, 4, 3, 2, 1, 1, groups=2),
    ],
    ids=str,
)
def test_a_convolution_is_ours_and_right(layer: nn.Module, contiguous: bool) -> None:
    x = picture()
    x = x if contiguous else x.contiguous(memory_format=torch.channels_last)
    assert kinds_of(layer.eval(), x) == {"Convolution": 1}
    assert_right(layer, x)


@pytest.mark.parametrize("layer", [nn.Conv3d(3, 5, 3, padding=1), nn.MaxPool3d(2), nn.AdaptiveAvgPool3d(1)], ids=str)
def test_volumes(layer: nn.Module) -> None:
    assert_right(layer.eval(), picture(2, 3, 5, 6, 7))


def test_one_dimension_falls_back() -> None:
    layer = nn.Conv1d(3, 5, 3).eval()
    assert kinds_of(layer, picture(2, 3, 9)) == {"aten.conv1d.default": 1}
    assert_right(layer, picture(2, 3, 9))


@pytest.mark.parametrize("shape", [(4, 12), (2, 5, 12), (2, 3, 4, 12)])
def test_products_over_the_last_dimension(shape: tuple[int, ...]) -> None:
    layer = nn.Linear(12, 7).eval()
    assert kinds_of(layer, picture(*shape)) == {"Linear": 1}
    assert_right(layer, picture(*shape))


def test_prelu_with_a_slope_per_channel() -> None:
    layer = nn.PReLU(6).eval()
    with torch.no_grad():
        layer.weight.uniform_(-1, 1)
    assert_right(layer, picture())


def test_other_dtypes_go_through_torch() -> None:
    layer = nn.Conv2d(6, 4, 3).double().eval()
    assert kinds_of(layer, picture().double()) == {"aten.conv2d.default": 1}
    assert_right(layer, picture().double())


def test_a_size_known_only_at_run_time() -> None:
    model = Of(lambda x: x[x[:, 0] > 0] * 2)
    x = picture(8, 3)
    assert_right(model, x)


def test_no_batch_at_all() -> None:
    layer = nn.Sequential(nn.Conv2d(6, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)).eval()
    assert fast(layer, picture(0, 6, 9, 7))(picture(0, 6, 9, 7)).shape == (0, 2)


@pytest.mark.parametrize("exponent", [0.5, -0.5, 0.25, -1, 3])
def test_powers_of_what_has_no_root(exponent: float) -> None:
    x = torch.tensor([[-float("inf"), -1.0, -0.0, 0.0, 4.0, float("inf")]])
    result, expected = fast(Of(lambda x: x**exponent), x)(x), x**exponent
    torch.testing.assert_close(result, expected, equal_nan=True)
    assert torch.equal(result.signbit() & ~result.isnan(), expected.signbit() & ~expected.isnan())


@pytest.mark.parametrize("given", [torch.contiguous_format, torch.channels_last_3d], ids=str)
@pytest.mark.parametrize("scale", [1.3, 2.3])
def test_scales_that_torch_follows_in_one_format_alone(given: torch.memory_format, scale: float) -> None:
    x = picture(2, 6, 3, 3, 3).contiguous(memory_format=given)
    model = Of(lambda x: F.interpolate(x.relu(), scale_factor=scale))
    assert torch.equal(fast(model, x)(x), model(x))


def test_scales_that_torch_follows_in_large_images_alone() -> None:
    model = Of(lambda x: F.interpolate(x, scale_factor=1.009))
    for x in (picture(1, 3, 4, 4), picture(1, 3, 100, 100)):
        assert torch.equal(fast(model, x)(x), model(x))
