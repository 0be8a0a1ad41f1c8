"""The engine as a variant: of the bench, of verify, alone, and for inference on the CPU."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import nhwc
from nhwc.errors import RegistryError, VariantError
from nhwc.inference.module import Engine
from nhwc.proof import Outcome
from nhwc.variants import inference_step, parse, prepare, training_step


@pytest.fixture(autouse=True)
def _nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NHWC_CACHE", "0")


@pytest.fixture
def net() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU())


X = torch.randn(2, 3, 8, 8)


def test_it_runs_what_the_engine_makes_of_a_copy(net: nn.Module) -> None:
    setup = prepare("engine", net, (X,), {}, torch.device("cpu"))
    assert isinstance(setup.call, Engine)
    assert net.training
    torch.testing.assert_close(inference_step(setup)(), net.eval()(X), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("spec", ["engine+bf16", "engine+compile", "kernels+engine"])
def test_it_stands_alone(spec: str) -> None:
    with pytest.raises(RegistryError, match="engine stands alone"):
        parse(spec)


def test_it_is_no_second_format() -> None:
    with pytest.raises(RegistryError, match="exclude each other"):
        parse("engine+channels_last")


def test_it_runs_on_the_cpu_and_trains_nothing(net: nn.Module) -> None:
    with pytest.raises(VariantError, match="the engine runs on the CPU, not on cuda"):
        parse("engine", torch.device("cuda"))
    with pytest.raises(VariantError, match="in evaluation mode; measure it without training"):
        training_step(prepare("engine", net, (X,), {}, torch.device("cpu")), None, None)


def test_the_bench_sets_it_against_others(net: nn.Module) -> None:
    report = nhwc.bench(net, X, variants=("contiguous", "engine"), budget_s=0.2)
    engine = report.variant("engine")
    assert engine.failure == ""
    assert engine.samples_ms
    trained = nhwc.bench(net, X, variants=("contiguous", "engine"), mode="training", budget_s=0.2)
    assert "evaluation mode" in trained.variant("engine").failure


def test_verify_judges_it(net: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    proof = nhwc.verify(net, X, variants=("engine",)).variants[0]
    assert proof.outcome is Outcome.PASSED
    with pytest.raises(VariantError, match="evaluation mode"):
        nhwc.verify(net, X, variants=("engine",), train=True)
    monkeypatch.setattr(Engine, "forward", lambda self, x: 1.01 * self.original(x))
    wrong = nhwc.verify(net, X, variants=("engine",)).variants[0]
    assert wrong.outcome is Outcome.DIVERGED
    assert wrong.divergence is None
