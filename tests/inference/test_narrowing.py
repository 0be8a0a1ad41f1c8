"""Engines whose linear layers keep their weights in 16 bits."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from inference.engines import errors
from torch import nn

import nhwc
from nhwc.errors import EngineError
from nhwc.inference.choosing import Chooser

X = torch.randn(2, 512, generator=torch.Generator().manual_seed(2))


@pytest.fixture(autouse=True)
def narrow_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if it had measured so: the first candidate is taken, which is the narrow one, and nothing is kept."""
    monkeypatch.setenv("NHWC_CACHE", "0")


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(512, 300), nn.ReLU(), nn.Linear(300, 7)).eval()


def labels(engine: nhwc.api.Engine) -> list[str]:
    (plan,) = engine.contents.specializations[0].plans.values()
    return [choice.label for choice in plan.choices.values()]


@pytest.mark.parametrize(("narrow", "rounding"), [(torch.bfloat16, 2.0**-9), (torch.float16, 2.0**-11)])
def test_weights_are_rounded_and_sums_are_not(narrow: torch.dtype, rounding: float) -> None:
    model = network()
    engine = nhwc.engine(model, X, weights=narrow, budget_s=0)
    assert all(label.startswith("narrow") for label in labels(engine))
    accuracy = engine.contents.accuracy
    assert accuracy is not None
    assert accuracy.holds
    assert accuracy.bound == 4 * rounding
    rounded = network()
    rounded.load_state_dict(
        {name: each.to(narrow) if each.dim() == 2 else each for name, each in model.state_dict().items()}
    )
    ours, eager = errors(engine, rounded, X)
    assert ours <= 4 * max(eager, 4 * torch.finfo(torch.float32).eps)


def test_what_measures_faster_in_float32_is_not_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    choose = Chooser.choose

    def wide(self: Chooser, request, found, table, refill):  # type: ignore[no-untyped-def]
        return choose(self, request, [each for each in found if not each.label.startswith("narrow")], table, refill)

    monkeypatch.setattr(Chooser, "choose", wide)
    model = network()
    engine = nhwc.engine(model, X, weights=torch.bfloat16, budget_s=0)
    assert engine.contents.accuracy is not None
    assert engine.contents.accuracy.floor < 1e-6
    ours, eager = errors(engine, model, X)
    assert ours <= 4 * max(eager, 4 * torch.finfo(torch.float32).eps)


def test_new_weights_and_files_keep_it(tmp_path: Path) -> None:
    model, other = network(), network()
    engine = nhwc.engine(model, X, weights=torch.float16, budget_s=0)
    engine.refresh(other)
    assert all(label.startswith("narrow float16") for label in labels(engine))
    loaded = nhwc.load_engine(engine.save(tmp_path / "net.engine"))
    assert torch.equal(loaded(X), engine(X))
    assert errors(loaded, other, X)[0] < 4 * 2.0**-11


def test_weights_beyond_float16_stay() -> None:
    model = network()
    with torch.no_grad():
        model[0].weight[0, 0] = 1e6
    found = labels(nhwc.engine(model, X, weights=torch.float16, budget_s=0))
    assert [label.startswith("narrow") for label in found] == [False, True]


def test_convolutions_are_as_they_were() -> None:
    model, x = nn.Conv2d(3, 8, 3).eval(), torch.randn(1, 3, 8, 8)
    one, other = (nhwc.engine(model, x, weights=each, budget_s=0) for each in (torch.bfloat16, None))
    assert torch.equal(one(x), other(x))


@pytest.mark.parametrize("weights", [torch.int8, torch.float64, "bf16"])
def test_other_types_are_refused(weights: object) -> None:
    with pytest.raises(EngineError, match=r"give torch\.bfloat16 or torch\.float16"):
        nhwc.engine(network(), X, weights=weights)  # type: ignore[arg-type]


def test_exact_and_rounded_exclude_each_other() -> None:
    with pytest.raises(EngineError, match="give one"):
        nhwc.engine(network(), X, weights=torch.bfloat16, exact=True)
