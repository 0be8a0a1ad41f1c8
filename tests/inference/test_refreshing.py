"""New weights for an engine that stands: picked up at once, or refused with the first difference."""

from __future__ import annotations

import copy
import threading
from typing import Any

import pytest
import torch
from inference.engines import assert_right, with_statistics
from torch import nn

import nhwc
from nhwc.errors import EngineError


def net(channels: int = 8) -> nn.Module:
    layers = [
        nn.Conv2d(3, channels, 3),
        nn.BatchNorm2d(channels),
        nn.ReLU(),
        nn.PReLU(channels),
        nn.GroupNorm(2, channels),
    ]
    return with_statistics(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 5)))


def changed(model: nn.Module) -> nn.Module:
    other = copy.deepcopy(model)
    with torch.no_grad():
        for tensor in (*other.parameters(), *(each for each in other.buffers() if each.is_floating_point())):
            tensor.mul_(1.5).add_(0.1)
    return other


@pytest.fixture(autouse=True)
def _nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NHWC_CACHE", "0")


def test_other_weights_are_picked_up_and_choices_stay() -> None:
    model, x = net(), torch.randn(2, 3, 12, 12)
    engine = nhwc.engine(model, x, batches=[4], budget_s=0.5)
    labels = [choice.label for choice in plan_of(engine).choices.values()]
    other = changed(model)
    engine.refresh(other)
    assert_right(other, x, engine=engine)
    assert_right(other, torch.randn(3, 3, 12, 12), engine=engine)
    assert engine.original is other
    assert [choice.label for choice in plan_of(engine).choices.values()] == labels
    assert engine.contents.accuracy is None


def plan_of(engine: Any) -> Any:
    return next(iter(engine.contents.specializations[0].plans.values()))


def test_weights_changed_in_place_are_seen_by_refreshing_alone() -> None:
    model, x = net(), torch.randn(2, 3, 12, 12)
    engine = nhwc.engine(model, x, budget_s=0.0)
    before = engine(x)
    model.load_state_dict(changed(model).state_dict())
    assert torch.equal(engine(x), before)
    engine.refresh(model)
    assert not torch.equal(engine(x), before)
    assert_right(model, x, engine=engine)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (
            lambda: net(16),
            r"0\.weight is torch\.float32 \(16, 3, 3, 3\), and the engine was built for .* \(8, 3, 3, 3\)",
        ),
        (lambda: nn.Sequential(nn.Conv2d(3, 8, 3)).eval(), "the model has no 1.weight"),
        (lambda: net().train(), "in training mode"),
        (lambda: net().double(), r"is torch\.float64"),
    ],
    ids=["wider", "shorter", "training", "double"],
)
def test_another_model_is_refused_and_the_engine_stays(other: Any, words: str) -> None:
    model, x = net(), torch.randn(2, 3, 12, 12)
    engine = nhwc.engine(model, x, budget_s=0.0)
    before = engine(x)
    with pytest.raises(EngineError, match=words):
        engine.refresh(other())
    assert torch.equal(engine(x), before)
    assert engine.original is model


def test_calls_meanwhile_see_the_old_or_the_new_weights() -> None:
    model, x = net(), torch.randn(1, 3, 12, 12)
    other = changed(model)
    engine = nhwc.engine(model, x, budget_s=0.0)
    old = engine(x)
    engine.refresh(other)
    new = engine(x)
    wrong: list[torch.Tensor] = []
    done = threading.Event()

    def call() -> None:
        while not done.is_set():
            found = engine(x)
            if not (torch.allclose(found, old) or torch.allclose(found, new)):
                wrong.append(found)

    callers = [threading.Thread(target=call) for _ in range(3)]
    for each in callers:
        each.start()
    for turn in range(4):
        engine.refresh(model if turn % 2 else other)
    done.set()
    for each in callers:
        each.join()
    assert not torch.allclose(old, new)
    assert wrong == []
