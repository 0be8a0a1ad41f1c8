"""The engine's measured times are kept in files of their own; tests/test_kept_times.py has the rest."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from nhwc.inference.contents import Origin
from nhwc.inference.making import Wishes, contents_for
from nhwc.inference.measurements import VERSION, Measurements


def test_what_one_engine_saves_another_reads(tmp_path: Path) -> None:
    first = Measurements("a machine", tmp_path)
    first.put("request", {"direct": 1.5})
    first.save()
    assert Measurements("a machine", tmp_path).get("request") == {"direct": 1.5}
    assert Measurements("another machine", tmp_path).get("request") is None
    assert [path.name.startswith(f"engine-v{VERSION}-") for path in tmp_path.glob("*.json")] == [True]


def test_an_interrupted_build_keeps_what_it_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NHWC_CACHE", str(tmp_path))

    def interrupted(what: str, done: int, of: int) -> None:
        if what == "comparing with float64":
            raise KeyboardInterrupt

    model, x = nn.Conv2d(3, 8, 3).eval(), torch.randn(1, 3, 8, 8)
    with pytest.raises(KeyboardInterrupt):
        contents_for(model, (x,), {}, Wishes(), "", Origin.here("a processor", ""), interrupted)
    (path,) = tmp_path.glob("engine-*.json")
    assert json.loads(path.read_text())["times"]
