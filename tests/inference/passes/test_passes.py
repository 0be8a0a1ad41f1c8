"""Passes: what disappears, what stays, and the numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from inference.engines import assert_right, kinds, kinds_of, with_statistics
from torch import nn

from nhwc.inference.operations import Convolution, Linear
from nhwc.inference.passes.permutations import inverse
from nhwc.inference.specialization import graph_of


class Function(nn.Module):
    """A forward with layers, by name."""

    def __init__(self, forward: Callable[..., torch.Tensor], **layers: nn.Module) -> None:
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)
        self.function = forward
        with_statistics(self)

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        return self.function(self, *args)


X = torch.randn(2, 6, 8, 8, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize(
    ("layers", "left"),
    [
        ([nn.Conv2d(6, 4, 3, padding=1), nn.BatchNorm2d(4)], {"Convolution": 1}),
        ([nn.Conv2d(6, 4, 3, bias=False, groups=2), nn.BatchNorm2d(4, affine=False)], {"Convolution": 1}),
        ([nn.ConvTranspose2d(6, 8, 3, 2, groups=2), nn.BatchNorm2d(8)], {"Convolution": 1}),
        ([nn.BatchNorm2d(6), nn.Conv2d(6, 4, 3)], {"Convolution": 1}),
        ([nn.BatchNorm2d(6), nn.Conv2d(6, 4, 3, groups=2)], {"Convolution": 1}),
        ([nn.BatchNorm2d(6), nn.Conv2d(6, 4, 3, padding=1)], {"Elementwise": 1, "Convolution": 1}),
        ([nn.BatchNorm2d(6), nn.BatchNorm2d(6), nn.ReLU()], {"Elementwise": 1}),
        ([nn.Conv2d(6, 4, 1), nn.Dropout(), nn.Identity(), nn.ReLU(inplace=True)], {"Convolution": 1}),
        ([nn.Conv2d(6, 4, 1), nn.ReLU(), nn.BatchNorm2d(4)], {"Elementwise": 1, "Convolution": 1}),
        ([nn.ZeroPad2d(1), nn.Conv2d(6, 4, 3)], {"Convolution": 1}),
        ([nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(6, 4, 3, 2)], {"Copy": 1, "Convolution": 1}),
        ([nn.Flatten(), nn.Linear(384, 5), nn.BatchNorm1d(5), nn.ReLU()], {"reshape": 1, "Linear": 1}),
    ],
    ids=lambda each: "-".join(type(layer).__name__ for layer in each) if isinstance(each, list) else "",
)
def test_a_chain_of_layers(layers: list[nn.Module], left: dict[str, int]) -> None:
    model = with_statistics(nn.Sequential(*layers))
    assert kinds_of(model, X) == left
    assert_right(model, X)


def residual(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return F.relu(self.b(F.relu(self.a(x))) + x)


def early_branch(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return self.a(x) + F.relu(F.avg_pool2d(x, 3, 1, 1))


def activated_before(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return F.silu(self.a(x)) + x


def read_twice(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
    y = self.a(x)
    return torch.cat([F.relu(y), y], 1)


def test_a_residual_block_is_two_convolutions() -> None:
    model = Function(residual, a=nn.Conv2d(6, 6, 3, padding=1), b=nn.Conv2d(6, 6, 3, padding=1))
    _, graph = graph_of(model, (X,), {})
    assert kinds(graph) == {"Convolution": 2}
    assert graph.nodes[1].addend is graph.inputs[0]
    assert graph.nodes[1].fused.activation
    assert not graph.nodes[1].fused.addend_last
    assert_right(model, X)


def test_a_convolution_waits_for_what_it_adds() -> None:
    model = Function(early_branch, a=nn.Conv2d(6, 6, 3, padding=1))
    _, graph = graph_of(model, (X,), {})
    assert isinstance(graph.nodes[-1].work, Convolution)
    assert graph.nodes[-1].addend is not None
    assert_right(model, X)


def test_an_activation_before_the_sum_stays_before_it() -> None:
    model = Function(activated_before, a=nn.Conv2d(6, 6, 1))
    _, graph = graph_of(model, (X,), {})
    assert [node.fused.addend_last for node in graph.nodes] == [True]
    assert_right(model, X)


def test_what_is_read_twice_keeps_its_value() -> None:
    model = Function(read_twice, a=nn.Conv2d(6, 6, 1))
    assert kinds_of(model, X) == {"Convolution": 1, "Elementwise": 1, "Join": 1}
    assert_right(model, X)


def test_pointwise_chains_become_one() -> None:
    model = Function(lambda _, x: (x * 2 + x.sigmoid()) / (x.abs() + 1))
    assert kinds_of(model, X) == {"Elementwise": 1}
    assert_right(model, X)


def convnext(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
    y = self.deep(x).permute(0, 2, 3, 1)
    y = self.narrow(F.gelu(self.wide(self.norm(y)))).permute(0, 3, 1, 2)
    return x + self.scale(y)


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.arange(1.0, 7.0).view(6, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.factor * x


def test_a_convnext_block_is_a_convolution_a_norm_and_two_products() -> None:
    model = Function(
        convnext,
        deep=nn.Conv2d(6, 6, 7, padding=3, groups=6),
        norm=nn.LayerNorm(6),
        wide=nn.Linear(6, 24),
        narrow=nn.Linear(24, 6),
        scale=Scale(),
    )
    _, graph = graph_of(model, (X,), {})
    found = kinds(graph)
    found.pop("permute")
    assert found == {"Convolution": 1, "Normalization": 1, "Linear": 2}
    assert_right(model, X)


def test_weights_follow_a_flatten_in_channels_last() -> None:
    model = with_statistics(nn.Sequential(nn.Conv2d(6, 5, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(45, 3)))
    _, graph = graph_of(model, (X,), {})
    assert kinds(graph) == {"Convolution": 1, "Pool": 1, "permute": 1, "reshape": 1, "Linear": 1}
    work = graph.nodes[-1].work
    assert isinstance(work, Linear)
    assert not torch.equal(work.weight, model[3].weight)
    assert_right(model, X)


def test_constants_are_computed_once() -> None:
    model = Function(lambda _, x: x + torch.arange(8.0).sin().view(1, 1, 1, 8) * torch.ones(8, 1))
    assert kinds_of(model, X) == {"Elementwise": 1}
    assert_right(model, X)


def test_the_inverse_undoes() -> None:
    assert inverse(inverse((0, 3, 1, 2))) == (0, 3, 1, 2)
