"""Recorded steps that are kept: a second plan runs no model, and what leads to other operators is recorded anew."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from nhwc.api import plan_formats
from nhwc.errors import ModelError

IMAGE = torch.rand(1, 3, 8, 8)


class Counting(nn.Module):
    """Tells ``called`` of every call; scale stands for a setting."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.conv, self.scale = nn.Conv2d(3, 4, 3), scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        called.append(1)
        return self.conv(x) * self.scale


called: list[int] = []


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NHWC_CACHE", str(tmp_path / "cache"))
    called.clear()
    return tmp_path / "cache"


def runs(model: nn.Module, *inputs: torch.Tensor, **options: Any) -> int:
    """How often the model is called for a plan."""
    # ``called`` is in the hash too, as all that the code names: it has to be empty whenever that is taken
    called.clear()
    plan_formats(model, *inputs, budget_s=0, **options)
    count = len(called)
    called.clear()
    return count


def test_a_second_plan_is_the_same_and_runs_no_model() -> None:
    first = plan_formats(Counting(), IMAGE, repeats=1)
    assert len(called) == 2
    called.clear()
    assert plan_formats(Counting(), torch.rand(1, 3, 8, 8), repeats=1) == first
    assert called == []


def frozen(model: Counting) -> Counting:
    model.conv.weight.requires_grad_(False)
    return model


@pytest.mark.parametrize(
    ("model", "inputs", "options"),
    [
        (lambda: Counting(2.0), IMAGE, {}),
        (Counting, torch.rand(2, 3, 8, 8), {}),
        (Counting, IMAGE, {"train": True}),
        (Counting, IMAGE, {"amp": torch.bfloat16}),
        (lambda: frozen(Counting()), IMAGE, {}),
        (Counting, IMAGE.clone().requires_grad_(), {}),
    ],
    ids=["setting", "shape", "training", "autocast", "frozen weights", "gradient of the input"],
)
def test_what_leads_to_other_operators_is_recorded_anew(
    model: Callable[[], nn.Module], inputs: torch.Tensor, options: dict[str, Any]
) -> None:
    assert runs(Counting(), IMAGE) == 2
    assert runs(model(), inputs, **options) == 2
    assert runs(model(), inputs, **options) == 0


def test_another_loss_is_recorded_anew() -> None:
    assert runs(Counting(), IMAGE, train=True, loss=lambda y: y.sum()) == 2
    assert runs(Counting(), IMAGE, train=True, loss=lambda y: y.abs().mean()) == 2


def test_other_switches_of_torch_are_recorded_anew() -> None:
    assert runs(Counting(), IMAGE) == 2
    torch.use_deterministic_algorithms(True)
    try:
        assert runs(Counting(), IMAGE) == 2
    finally:
        torch.use_deterministic_algorithms(False)
    assert runs(Counting(), IMAGE) == 0


def test_a_model_with_hooks_is_always_recorded() -> None:
    model = Counting()
    model.register_forward_hook(lambda *_: None)
    assert [runs(model, IMAGE), runs(model, IMAGE)] == [2, 2]


def test_what_does_not_run_in_channels_last_is_tried_again() -> None:
    model = nn.Sequential(Counting(), nn.Flatten(), nn.Linear(144, 2))
    refusing = nn.Sequential(Counting(), Viewing())
    assert [runs(model, IMAGE), runs(model, IMAGE)] == [2, 0]
    assert [runs(refusing, IMAGE), runs(refusing, IMAGE)] == [2, 2]


class Viewing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(x.shape[0], -1)


@pytest.mark.parametrize(
    "text", ["{", "[" * 100_000, '{"format": "nhwc recorded steps", "version": 1, "contiguous": {}}']
)
def test_a_damaged_file_is_recorded_anew_and_replaced(cache: Path, text: str) -> None:
    assert runs(Counting(), IMAGE) == 2
    (path,) = (cache / "steps").iterdir()
    path.write_text(text)
    assert [runs(Counting(), IMAGE), runs(Counting(), IMAGE)] == [2, 0]


def test_without_a_cache_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NHWC_CACHE", "0")
    assert [runs(Counting(), IMAGE), runs(Counting(), IMAGE)] == [2, 2]


def test_a_model_that_raises_keeps_nothing(cache: Path) -> None:
    with pytest.raises(ModelError):
        plan_formats(Counting(), torch.rand(1, 5, 8, 8))
    assert not (cache / "steps").exists()


def test_a_cache_that_can_only_be_read_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_keywords: object) -> None:
        raise PermissionError(13, "Permission denied")

    assert runs(Counting(), IMAGE) == 2
    monkeypatch.setattr(os, "utime", refuse)
    assert runs(Counting(), IMAGE) == 0


def test_what_a_killed_writer_left_goes_with_the_next(cache: Path) -> None:
    runs(Counting(), IMAGE)
    (path,) = (cache / "steps").iterdir()
    path.rename(path.with_name(f"{path.stem}-1.tmp"))
    runs(Counting(), IMAGE)
    assert list((cache / "steps").iterdir()) == [path]
