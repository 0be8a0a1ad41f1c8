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
from nhwc.inference import refreshing


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


def layers(*more: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), *more).eval()


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        (lambda: layers(nn.ReLU()), lambda: layers(nn.Tanh()), r"the model has aten\.tanh.* in 1, .* has aten\.relu"),
        (lambda: layers(nn.ReLU()), lambda: layers(nn.ReLU(), nn.ReLU()), r"the model has aten\.relu.* in 2, "),
        (lambda: layers(nn.ReLU(), nn.ReLU()), lambda: layers(nn.ReLU()), r"has aten\.relu.* in 2 there"),
        (lambda: layers(nn.ELU(1.0)), lambda: layers(nn.ELU(0.5)), r"the model has aten\.elu\.default\(%\d+, 0\.5"),
        (
            lambda: nn.Conv2d(4, 4, 3, padding=1).eval(),
            lambda: nn.Conv2d(4, 4, 3, padding=2, dilation=2).eval(),
            r"the model has aten\.conv2d\.default\(.*\[2, 2\], \[2, 2\]",
        ),
    ],
    ids=["activation", "longer", "shorter", "argument", "dilation"],
)
def test_other_operators_with_the_same_weights_are_refused(one: Any, other: Any, words: str) -> None:
    model = one()
    x = torch.randn(1, 4 if isinstance(model, nn.Conv2d) else 3, 9, 9)
    engine = nhwc.engine(model, x, budget_s=0.0)
    before = engine(x)
    with pytest.raises(EngineError, match=words):
        engine.refresh(other())
    assert torch.equal(engine(x), before)


class Scaled(nn.Module):
    """Holds a tensor that is no parameter and no buffer, and takes a number."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 3, 1)
        self.scale = torch.full((3, 1, 1), scale)

    def forward(self, x: torch.Tensor, number: float = 1.0) -> torch.Tensor:
        result: torch.Tensor = self.layer(x) * self.scale + number
        return result


def test_tensors_that_are_plain_attributes_are_picked_up() -> None:
    x = torch.randn(1, 3, 9, 9)
    engine = nhwc.engine(Scaled(1.0).eval(), x, kwargs={"number": 2.0}, budget_s=0.0)
    other = Scaled(3.0).eval()
    engine.refresh(other)
    with torch.no_grad():
        torch.testing.assert_close(engine(x, number=2.0), other(x, number=2.0))


def tied(are_tied: bool) -> nn.Module:
    first, second = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)
    if are_tied:
        second.weight = first.weight
    return nn.Sequential(first, nn.ReLU(), second).eval()


@pytest.mark.parametrize(("built", "later"), [(True, False), (False, True)])
def test_weights_tied_or_untied_since_are_refused(built: bool, later: bool) -> None:
    engine = nhwc.engine(tied(built), torch.randn(1, 3, 9, 9), budget_s=0.0)
    with pytest.raises(
        EngineError, match=r"the model has aten\.conv2d\.default\(.* in 0 there; build the engine again"
    ):
        engine.refresh(tied(later))
    engine.refresh(tied(built))


def test_a_batch_norm_that_shifts_since_is_refused_with_the_reason() -> None:
    def before_padding() -> nn.Module:
        return nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 4, 3, padding=1)).eval()

    x = torch.randn(1, 3, 9, 9)
    engine = nhwc.engine(before_padding(), x, budget_s=0.0)
    with pytest.raises(EngineError, match=r"with these weights 0 folds .* batch norm before a padded convolution"):
        engine.refresh(with_statistics(before_padding()))


def test_a_call_on_another_number_of_threads_may_come_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = net(), torch.randn(2, 3, 12, 12)
    engine = nhwc.engine(model, x, budget_s=0)
    first = engine.contents.specializations[0]
    known = refreshing.runner

    def interrupted(*args: Any) -> Any:
        first.ready(torch.get_num_threads() + 1)
        return known(*args)

    monkeypatch.setattr(refreshing, "runner", interrupted)
    other = changed(model)
    engine.refresh(other)
    assert_right(other, x, engine=engine)
