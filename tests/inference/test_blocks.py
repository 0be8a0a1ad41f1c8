"""Inverted residuals: joined where that is told to be faster, in every form that the step takes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from inference.engines import assert_right, chooser, fast, kinds
from inference.passes.test_passes import Function
from torch import nn

from nhwc.inference import blocks
from nhwc.inference.choosing import Chooser
from nhwc.inference.operations import InvertedResidual
from nhwc.inference.specialization import graph_of
from nhwc.inference.steps.registry import Request

X = torch.randn(2, 8, 10, 9, generator=torch.Generator().manual_seed(10)).contiguous(memory_format=torch.channels_last)


def layers() -> dict[str, nn.Module]:
    torch.manual_seed(11)
    deep = nn.Sequential(nn.Conv2d(24, 24, 3, padding=1, groups=24), nn.BatchNorm2d(24))
    return {"wide": nn.Conv2d(8, 24, 1), "deep": deep, "narrow": nn.Conv2d(24, 8, 1)}


def whole(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return x + self.narrow(self.deep(self.wide(x).relu()).relu())


def gated(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
    y = self.deep(self.wide(x).relu()).relu()
    return self.narrow(y * y.mean((2, 3), keepdim=True).sigmoid())


def separable(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
    y = self.wide(x)
    return self.narrow(self.deep(y)) + y[:, :8]


FORMS = {whole: (True, True), gated: (True, False), separable: (False, True)}


@pytest.fixture(params=[True, False])
def is_faster(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a joined step is told to take less than its parts."""

    def told(self: Chooser, asked: Request, *_: object) -> float:
        joined = isinstance(asked.operation, InvertedResidual)
        return (1.0 if request.param else 100.0) if joined else 2.0

    monkeypatch.setattr(Chooser, "least_ms", told)
    return bool(request.param)


@pytest.mark.parametrize("form", FORMS, ids=lambda each: each.__name__)
def test_blocks_are_joined_where_that_is_faster(form: Callable[..., torch.Tensor], is_faster: bool) -> None:
    model = Function(form, **layers())
    _, graph = graph_of(model, (X,), {})
    done = blocks.fuse(graph, 2, False, chooser())
    graph.check()
    _, again = graph_of(model, (X,), {})
    blocks.repeat(again, done)
    assert kinds(again) == kinds(graph)
    assert kinds(graph)["InvertedResidual"] == is_faster
    if is_faster:
        (work,) = [node.work for node in graph.nodes if isinstance(node.work, InvertedResidual)]
        assert (work.expand is not None, work.project is not None) == FORMS[form]
    assert_right(model, X, engine=fast(model, X))


def test_nothing_is_joined_when_the_budget_is_spent() -> None:
    model = Function(whole, **layers())
    _, graph = graph_of(model, (X,), {})
    blocks.fuse(graph, 2, False, chooser(0.0))
    assert kinds(graph) == {"Convolution": 3}
