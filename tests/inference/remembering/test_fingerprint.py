"""Fingerprints: what changes them, what does not, and what cannot be told."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
import torchvision
from torch import nn

from nhwc.inference.remembering.fingerprint import fingerprint

X = torch.zeros(1, 3, 8, 8)


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def tripled(x: torch.Tensor) -> torch.Tensor:
    return x * 3


class Applies(nn.Module):
    """A module with one setting, whose forward calls what it holds."""

    def __init__(self, setting: Any) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 3, 1)
        self.setting = setting

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layer(self.setting(x) if callable(self.setting) else x)
        return result


def told(model: nn.Module, *args: Any) -> str:
    found = fingerprint(model.eval(), args or (X,), {})
    assert found is not None
    return found


def test_weights_do_not_matter() -> None:
    assert told(Applies(3)) == told(Applies(3))
    assert told(torchvision.models.resnet18()) == told(torchvision.models.resnet18())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (3, 4),
        (1, True),
        (doubled, tripled),
        (functools.partial(torch.mul, other=2), functools.partial(torch.mul, other=3)),
        (lambda x: x + 1, lambda x: x + 2),
        (nn.ReLU(), nn.ReLU6()),
        ([1, {"a": 2}], [1, {"a": 3}]),
        (torch.float32, torch.float64),
        (Applies(1), Applies(2)),
        (torch.relu, torch.tanh),
    ],
    ids=["number", "type", "function", "partial", "lambda", "module", "tree", "dtype", "settings", "operator"],
)
def test_settings_and_code_matter(one: Any, other: Any) -> None:
    assert told(Applies(one)) != told(Applies(other))
    assert told(Applies(one)) == told(Applies(one))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (nn.Conv2d(3, 3, 1), nn.Conv2d(3, 4, 1)),
        (nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1, bias=False)),
        (nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1).double()),
        (nn.Conv2d(3, 3, 3), nn.Conv2d(3, 3, 3).to(memory_format=torch.channels_last)),  # type: ignore[call-overload]
        (nn.Sequential(nn.ReLU(), nn.Tanh()), nn.Sequential(nn.Tanh(), nn.ReLU())),
        (nn.BatchNorm2d(3), nn.BatchNorm2d(3, eps=1e-3)),
    ],
)
def test_the_form_of_modules_matters(one: nn.Module, other: nn.Module) -> None:
    assert told(one) != told(other)


def test_tied_weights_matter() -> None:
    tied, loose = (nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)) for _ in range(2))
    assert told(tied) == told(loose)
    tied[1].weight = tied[0].weight
    assert told(tied) != told(loose)


def test_arguments_matter_by_shape_and_value() -> None:
    model = nn.ReLU()
    assert told(model, X) == told(model, torch.ones(1, 3, 8, 8))
    others = [(X[:, :2],), (X.double(),), (X, X), (X, 1), (X, 2), (X.contiguous(memory_format=torch.channels_last),)]
    assert len({told(model, *each) for each in [(X,), *others]}) == 1 + len(others)


def made_by(source: str) -> nn.Module:
    """A module of a class that a user has just written, whose forward is code that it names."""
    names: dict[str, Any] = {"torch": torch, "nn": nn}
    exec(source, names)
    model: nn.Module = names["Model"]()
    return model


CODE = """
FACTOR = 2
def inner(x): return x * FACTOR
class Base(nn.Module):
    def outer(self, x): return inner(x) + 1
class Model(Base):
    def forward(self, x): return self.outer(x)
"""


@pytest.mark.parametrize("change", [("FACTOR = 2", "FACTOR = 3"), ("x * FACTOR", "x + FACTOR"), (" + 1", " + 2")])
def test_code_that_forward_only_names_matters(change: tuple[str, str]) -> None:
    assert told(made_by(CODE)) == told(made_by(CODE))
    assert told(made_by(CODE)) != told(made_by(CODE.replace(*change)))


def hooked() -> nn.Module:
    model = nn.ReLU()
    model.register_forward_hook(lambda *_: None)
    return model


@pytest.mark.parametrize(
    "model", [hooked(), Applies([torch.zeros(3)]), Applies(iter([1]))], ids=["hook", "tensor", "iterator"]
)
def test_what_cannot_be_told_has_none(model: nn.Module) -> None:
    assert fingerprint(model, (X,), {}) is None


def test_a_setting_that_holds_itself_ends() -> None:
    ring: list[Any] = [1]
    ring.append(ring)
    assert told(Applies(ring)) == told(Applies(ring))
