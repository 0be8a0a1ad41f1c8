"""``nhwc engine TARGET``, on the real engine."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import nhwc
from nhwc.cli.main import app
from nhwc.engine_report import Accuracy

MODEL = """
import torch
from torch import nn

def net():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.LPPool2d(2.0, 2)), torch.randn(2, 3, 8, 8)

class Branches(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x

def branches():
    return Branches(), torch.randn(2, 3, 8, 8)
"""


class Ran:
    def __init__(self, *arguments: str) -> None:
        result = CliRunner().invoke(app, ["engine", *arguments])
        self.code, self.out, self.err = result.exit_code, result.stdout, result.stderr


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "models_for_engines.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NHWC_CACHE", "0")
    monkeypatch.setattr(sys, "path", list(sys.path))
    threads = torch.get_num_threads()
    yield tmp_path
    torch.set_num_threads(threads)
    sys.modules.pop("models_for_engines", None)


def test_an_unknown_type_of_weights_is_refused() -> None:
    ran = Ran("models_for_engines.py:net", "--weights", "int8")
    assert (ran.code, ran.err) == (2, "nhwc: --weights int8: give bf16 or fp16\n")


def test_it_builds_reports_and_saves(folder: Path) -> None:
    ran = Ran("models_for_engines.py:net", "--bench", "0", "--budget", "0.5", "--threads", "1", "-o", "net.engine")
    assert ran.code == 0, ran.err
    assert "convolution 3x3 + relu" in ran.out
    assert "Run by torch" in ran.out
    assert "within the bound" in " ".join(ran.out.split())
    assert ran.err == "nhwc: wrote net.engine\n"
    loaded = nhwc.load_engine(folder / "net.engine")
    assert loaded(torch.randn(2, 3, 8, 8)).shape == (2, 8, 3, 3)


def test_json_is_the_report_and_nothing_else() -> None:
    ran = Ran("models_for_engines.py:net", "--bench", "0", "--budget", "0", "--json", "--exact", "--batches", "1,4")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["format"] == "nhwc-engine-report"
    report = nhwc.load_engine_report(ran.out)
    assert report.exact
    assert report.benchmark is None
    assert report.target == "models_for_engines.py:net"


def test_it_is_set_against_eager_and_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    # what torch.compile takes is for its own tests
    monkeypatch.setattr("nhwc.cli.engine._PEERS", {"contiguous": "contiguous", "channels_last": "channels_last"})
    ran = Ran("models_for_engines.py:net", "--bench", "0.3", "--budget", "0", "--json")
    assert ran.code == 0, ran.err
    benchmark = nhwc.load_engine_report(ran.out).benchmark
    assert benchmark is not None
    assert [each.name for each in benchmark.variants] == ["contiguous", "channels_last", "engine"]
    assert all(not each.failure for each in benchmark.variants)


def test_results_outside_the_bound_end_in_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nhwc.inference.making.settle", lambda *_: Accuracy(1e-2, 1e-7))
    ran = Ran("models_for_engines.py:net", "--bench", "0", "--budget", "0")
    assert ran.code == 1
    assert "results lie outside the bound" in ran.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("models_for_engines.py:net", "--batches", "1,x"), "--batches '1,x' are no batch sizes"),
        (("models_for_engines.py:net", "--batches", "0"), "--batches '0' are no batch sizes"),
        (("models_for_engines.py:net", "--budget", "-1"), "--budget -1 is no number of seconds"),
        (("models_for_engines.py:net", "--bench", "inf"), "--bench inf is no number of seconds"),
        (("models_for_engines.py:net", "-o", "."), "-o . is a folder"),
        (("models_for_engines.py:net", "-o", "new/net.engine"), "-o new/net.engine: there is no folder new; make it"),
        (("models_for_engines.py:gone",), "gone"),
        (("models_for_engines.py:branches", "--bench", "0"), "torch.export cannot take the model"),
        (("models_for_engines.py:net", "--nonsense"), "see nhwc engine --help"),
    ],
)
def test_bad_input_is_one_sentence(arguments: tuple[str, ...], sentence: str) -> None:
    ran = Ran(*arguments)
    assert ran.code == 2
    assert sentence in ran.err
    assert ran.err.count("\n") == 1
    assert not Path("new").exists()
