"""Why a model was not captured: one sentence, with the user's line and the fix."""

from __future__ import annotations

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


class Branches(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return x
        return -x


class Loops(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(int(x.max())):
            x = x / 2
        return x


class Counts(nn.Module):
    """Refuses its input, but not before it has counted and drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: torch.Tensor
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        torch.rand(1)
        x.add_(1)
        raise ValueError("no such picture")


@pytest.mark.parametrize(
    ("model", "code"),
    [(Branches(), r"if x\.sum\(\) > 0:"), (Loops(), r"for _ in range\(int\(x\.max\(\)\)\):")],
    ids=["branch", "loop"],
)
def test_what_hangs_on_values_is_told_with_its_line_and_the_fix(model: nn.Module, code: str) -> None:
    with pytest.raises(
        EngineError, match=rf"test_reasons\.py:\d+ in forward: this line \(`{code}`\).*torch\.where"
    ) as raised:
        nhwc.engine(model.eval(), X)
    assert "symbol" not in str(raised.value).lower()
    assert raised.value.__cause__ is not None


@pytest.mark.parametrize(
    ("model", "example", "words"),
    [
        (nn.Conv2d(3, 4, 3), torch.randn(1, 4, 9, 9), r"inputs, \(1, 4, 9, 9\) float32: RuntimeError: .*3 channels"),
        (
            nn.Conv2d(3, 4, 3).half(),
            X,
            r".*its weights are float16, so convert the example with \.to\(torch\.float16\)",
        ),
        (
            nn.Conv2d(3, 4, 3),
            X.double(),
            r".*its weights are float32, so convert the example with \.to\(torch\.float32\)",
        ),
        (nn.Conv2d(3, 4, 3), [X], r"inputs, \[\(1, 3, 9, 9\) float32\]: TypeError: .*got \(list"),
    ],
    ids=["channels", "half model", "double example", "list"],
)
def test_an_example_that_the_model_does_not_take(model: nn.Module, example: Any, words: str) -> None:
    with pytest.raises(EngineError, match=f"^the model does not take the example {words}") as raised:
        nhwc.engine(model.eval(), example)
    assert "torch.export" not in str(raised.value)


def test_asking_the_model_changes_nothing() -> None:
    model, x = Counts().eval(), X.clone()
    random = torch.random.get_rng_state()
    with pytest.raises(EngineError, match=r"test_reasons\.py:\d+ in forward: ValueError: no such picture$"):
        nhwc.engine(model, x)
    assert model.calls.item() == 0
    assert torch.equal(x, X)
    assert torch.equal(random, torch.random.get_rng_state())


class Uncopied(Branches):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise ValueError("no such picture")

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        raise TypeError("not copied")


def test_a_model_that_cannot_be_copied_is_told_as_torch_export_has_it() -> None:
    with pytest.raises(EngineError, match=r"torch\.export cannot take the model at .*ValueError: no such picture"):
        nhwc.engine(Uncopied().eval(), X)
