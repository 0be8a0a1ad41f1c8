"""Models that are built a second time: no second capture, no second comparison, and never an old result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from inference.engines import assert_right
from torch import nn

import nhwc
from nhwc.inference import making, specialization
from nhwc.inference.remembering.documents import Documents

X = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(2))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NHWC_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> list[nn.Module]:
    """The models that torch.export has captured since."""
    found: list[nn.Module] = []
    export = specialization.capture.export

    def counted(model: nn.Module, *args: Any) -> Any:
        found.append(model)
        return export(model, *args)

    monkeypatch.setattr(specialization.capture, "export", counted)
    return found


def network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4)).eval()


def built(model: nn.Module, *args: Any, **options: Any) -> nn.Module:
    return nhwc.engine(model, *(args or (X,)), budget_s=0, **options)


def test_a_second_build_captures_and_compares_nothing(
    folder: Path, captured: list[nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = network()
    first = built(model)
    monkeypatch.setattr(making, "settle", lambda *_: pytest.fail("compared again"))
    second = built(model)
    assert captured == [model]
    assert second.contents.accuracy == first.contents.accuracy
    assert torch.equal(first(X), second(X))


def test_other_weights_are_compared_and_not_captured(folder: Path, captured: list[nn.Module]) -> None:
    built(network())
    other = network()
    assert_right(other, X, engine=built(other))
    assert len(captured) == 1
    assert len(list((folder / "accuracy").iterdir())) == 2


def test_other_shapes_and_settings_are_captured(folder: Path, captured: list[nn.Module]) -> None:
    model = network()
    built(model)
    built(model, torch.cat([X, X]))
    model[1].eps = 0.5
    assert_right(model, X, engine=built(model))
    assert len(captured) == 3


class Hidden(nn.Module):
    """Calls a function that only a table knows, which nothing in its code names."""

    table: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = getattr(type(self), "".join(["ta", "ble"]))(x)
        return result


def test_a_change_that_no_name_tells_is_found_by_the_result(
    folder: Path, captured: list[nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nhwc.inference.remembering.kept.fingerprint", lambda *_: "the same")
    monkeypatch.setattr(Hidden, "table", torch.relu)
    built(Hidden().eval())
    monkeypatch.setattr(Hidden, "table", torch.tanh)
    model = Hidden().eval()
    assert_right(model, X, engine=built(model))
    assert len(captured) == 2
    assert_right(model, X, engine=built(model))
    assert len(captured) == 2


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"null", b'{"format": "nhwc engine capture", "version": 1}'])
def test_a_damaged_file_is_made_anew(folder: Path, captured: list[nn.Module], damage: bytes) -> None:
    model = network()
    built(model)
    (path,) = (folder / "captures").iterdir()
    whole = path.read_bytes()
    path.write_bytes(damage)
    assert_right(model, X, engine=built(model))
    assert len(captured) == 2
    assert json.loads(path.read_bytes()) == json.loads(whole)


def test_a_folder_that_cannot_be_is_no_error(
    tmp_path: Path, captured: list[nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("NHWC_CACHE", str(tmp_path / "file"))
    model = network()
    built(model)
    assert_right(model, X, engine=built(model))
    assert len(captured) == 2


def test_nothing_is_kept_where_nothing_is_wanted(captured: list[nn.Module], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NHWC_CACHE", "0")
    model = network()
    built(model)
    built(model)
    assert len(captured) == 2


def test_a_model_in_training_mode_is_refused_all_the_same(folder: Path) -> None:
    model = network()
    built(model)
    with pytest.raises(nhwc.errors.EngineError, match="training mode"):
        built(model.train())


def test_the_longest_unused_documents_go_first(tmp_path: Path) -> None:
    documents = Documents(tmp_path, "a test", 1, most=3)
    for key in "abc":
        documents.write(key, {"key": key})
    assert documents.read("a") is not None
    documents.write("d", {"key": "d"})
    left = {key for key in "abcd" if documents.read(key) is not None}
    assert left == {"a", "c", "d"}
    assert Documents(tmp_path, "a test", 2, most=3).read("a") is None


def test_an_engine_of_a_kept_capture_takes_new_weights(folder: Path, captured: list[nn.Module]) -> None:
    built(network())
    engine, other = built(network()), network()
    assert len(captured) == 1
    engine.refresh(other)
    assert_right(other, X, engine=engine)
