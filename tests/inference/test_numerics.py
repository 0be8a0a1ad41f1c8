"""Inexact algorithms are given up, the worst first, until the error is within its bound."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from inference.engines import assert_right, specialized
from torch import nn

import nhwc
from nhwc.engine_report import Accuracy, worst
from nhwc.inference.held_back import held_back
from nhwc.inference.numerics import settle
from nhwc.inference.operations import Convolution
from nhwc.inference.steps import registry
from nhwc.inference.steps.registry import Candidate, Request

X = torch.randn(1, 8, 10, 10, generator=torch.Generator().manual_seed(5))


@pytest.fixture
def rough(monkeypatch: pytest.MonkeyPatch) -> dict[int, float]:
    """Input channels → the relative error of a made-up algorithm that takes such convolutions, first in line."""
    wanted: dict[int, float] = {}
    known = list(registry._ALGORITHMS[Convolution])

    def algorithm(request: Request) -> Iterator[Candidate]:
        error = wanted.get(request.inputs[0].shape[1])
        if error is None or request.exact:
            return
        conv = request.operation
        assert isinstance(conv, Convolution)
        wrong = replace(request, operation=replace(conv, weight=conv.weight * (1 + error)))
        inner = [each for function in known for each in function(wrong)]
        if inner:  # not for an input as NCHW, which none of them reads
            yield Candidate("rough", inner[0].build)

    monkeypatch.setitem(registry._ALGORITHMS, Convolution, [algorithm, *known])
    return wanted


def net() -> nn.Module:
    torch.manual_seed(6)
    return nn.Sequential(nn.Conv2d(8, 12, 3), nn.Conv2d(12, 16, 3), nn.Conv2d(16, 4, 3)).eval()


def test_a_good_engine_keeps_its_algorithms(rough: dict[int, float]) -> None:
    rough[12] = 1e-9
    model = net()
    made = specialized(model, X)
    accuracy = settle(made, model, (X,), {}, torch.get_num_threads(), lambda *_: None)
    assert accuracy.holds
    assert accuracy.switched_off == ()
    assert "rough" in {each.label for each in made.plans[torch.get_num_threads()].choices.values()}


def test_the_worst_layer_is_given_up_and_the_others_stay(rough: dict[int, float]) -> None:
    rough.update({8: 1e-9, 12: 1e-3, 16: 1e-9})
    model = net()
    made = specialized(model, X)
    accuracy = settle(made, model, (X,), {}, torch.get_num_threads(), lambda *_: None)
    assert accuracy.switched_off == ("1",)
    assert accuracy.holds
    labels = [each.label for each in made.plans[torch.get_num_threads()].choices.values()]
    assert labels.count("rough") == 2


def test_exact_never_uses_them(rough: dict[int, float]) -> None:
    rough[12] = 1e-3
    made = specialized(net(), X, exact=True)
    assert "rough" not in {each.label for each in made.plans[torch.get_num_threads()].choices.values()}


class Float32Only(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ torch.eye(10)


def test_a_model_that_has_no_float64_says_so() -> None:
    model = Float32Only().eval()
    accuracy = settle(specialized(model, X), model, (X,), {}, torch.get_num_threads(), lambda *_: None)
    assert "does not run in float64" in accuracy.reason
    assert not accuracy.holds


def test_every_shape_and_bucket_is_compared(rough: dict[int, float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NHWC_CACHE", "0")
    rough[12] = 1e-3
    model = net()
    engine = nhwc.engine(model, X, shapes=[(X[..., :9],)], batches=[3], budget_s=0)
    for each in (X, X[..., :9], torch.cat([X, X, X])):
        assert_right(model, each, engine=engine)
    assert engine.contents.accuracy is not None
    assert engine.contents.accuracy.switched_off == ("1",)


def test_the_worst_of_several_is_told() -> None:
    fine, near = Accuracy(1e-7, 1e-7), Accuracy(3e-7, 1e-7, ("a",))
    past, unknown = Accuracy(1e-3, 1e-7, ("b", "a")), Accuracy(float("nan"), float("nan"), (), "a reason")
    assert worst([fine, near]) == near
    assert worst([near, past, fine]) == Accuracy(1e-3, 1e-7, ("a", "b"))
    assert worst([past, unknown, fine]).reason == "a reason"


def test_the_model_does_not_run_while_another_thread_exports() -> None:
    class Noting(nn.Sequential):
        called = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            type(self).called += 1
            return super().forward(x)  # type: ignore[no-any-return]

    model = Noting(nn.Conv2d(8, 4, 3)).eval()
    made = specialized(model, X)
    before = Noting.called
    thread = threading.Thread(target=settle, args=(made, model, (X,), {}, torch.get_num_threads(), lambda *_: None))
    with held_back():  # torch.export gives the model fake parameters meanwhile
        thread.start()
        thread.join(0.5)
        meanwhile = Noting.called
    thread.join()
    assert meanwhile == before
    assert Noting.called == before + 2
