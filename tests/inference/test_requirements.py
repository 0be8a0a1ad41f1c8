"""Models and examples that are no use are refused in one sentence, and stay as they were."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn

import nhwc
from nhwc.errors import EngineError

X = torch.randn(1, 3, 9, 9)


@pytest.fixture(autouse=True)
def _nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NHWC_CACHE", "0")


def net() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()


def scripted() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch has deprecated scripting
        return torch.jit.trace(net(), X)  # type: ignore[no-any-return, no-untyped-call]


def engine_of(model: nn.Module) -> nn.Module:
    return nhwc.engine(model, X, budget_s=0)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (lambda: net().to("meta"), r"0\.weight is on the meta device"),
        (scripted, "the model is a TorchScript module"),
        (lambda: nn.Sequential(scripted(), nn.ReLU()).eval(), "part 0 of the model is a TorchScript module"),
        (lambda: engine_of(net()), "the model is an engine already"),
        (lambda: nn.Sequential(engine_of(net()), nn.ReLU()).eval(), "part 0 of the model is an engine already"),
        (lambda: net().train(), r"the model itself, 0, 1, … is in training mode; call eval\(\) first"),
        (lambda: net().state_dict(), r"a state dict where a model is expected; .*model\.load_state_dict\(state\)"),
        (lambda: torch.export.export(net(), (X,)), "an ExportedProgram where a model is expected"),
        (lambda: None, "not of a NoneType"),
    ],
    ids=["meta", "scripted", "part scripted", "engine", "part engine", "training", "state dict", "exported", "none"],
)
def test_models_that_are_refused_for_building_and_refreshing(model: Any, words: str) -> None:
    given, fast = model(), engine_of(net())
    before = fast(X)
    for use in (lambda: nhwc.engine(given, X), lambda: fast.refresh(given)):
        with pytest.raises(EngineError, match=words) as raised:
            use()
        assert "\n" not in str(raised.value)
    assert torch.equal(fast(X), before)


def test_a_model_in_training_mode_stays_in_it() -> None:
    model = net().train()
    with pytest.raises(EngineError):
        nhwc.engine(model, X)
    assert all(each.training for each in model.modules())


@pytest.mark.parametrize(
    ("inputs", "options", "words"),
    [
        (((1, 3, 9, 9),), {}, r"inputs, \(1, 3, 9, 9\), hold no tensor; .*torch\.randn\(1, 3, 224, 224\)"),
        (("a.jpg",), {"kwargs": {"scale": 2}}, r"inputs, 'a\.jpg', scale=2, hold no tensor"),
        ((list(range(99)),), {}, r"inputs, \[0, 1, .*\.\.\., hold no tensor"),
        ((X.to("meta"),), {}, r"an example input is on meta; move it with \.cpu\(\)"),
        ((X,), {"kwargs": [X]}, "give keyword arguments by name"),
        ((X,), {"shapes": [X]}, r"shapes: got a tensor of shape \(1, 3, 9, 9\) where example arguments"),
        ((X,), {"shapes": X}, r"shapes: got a tensor of shape \(1, 3, 9, 9\) where example arguments"),
        ((X,), {"shapes": [(1, 3, 8, 8)]}, r"shapes: got \(1, 3, 8, 8\) where .*shapes=\[\(x_small,\), \(x_large,\)\]"),
        ((X,), {"shapes": 3}, "shapes: got 3 where"),
    ],
)
def test_examples_that_are_refused(inputs: tuple[Any, ...], options: dict[str, Any], words: str) -> None:
    with pytest.raises(EngineError, match=words):
        nhwc.engine(net(), *inputs, **options)


def test_the_model_inside_a_compiled_one_is_taken_and_not_compiled() -> None:
    model, calls = net(), []

    def backend(graph: torch.fx.GraphModule, _: list[torch.Tensor]) -> Any:
        calls.append(graph)
        return graph.forward

    compiled = torch.compile(model, backend=backend)
    fast = nhwc.engine(compiled, X, budget_s=0)
    assert fast.contents.target == "Sequential"
    assert fast.original is compiled
    with torch.no_grad():
        torch.testing.assert_close(fast(X), model(X))
    fast.refresh(compiled)
    assert calls == []


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_a_model_of_another_dtype_is_built_with_a_warning(dtype: torch.dtype) -> None:
    name = str(dtype).removeprefix("torch.")
    with pytest.warns(RuntimeWarning, match=rf"weights are {name}, .*build the engine from model\.float\(\)") as caught:
        fast = nhwc.engine(net().to(dtype), X.to(dtype), budget_s=0)
    assert caught[0].filename == __file__
    assert fast(X.to(dtype)).dtype == dtype
