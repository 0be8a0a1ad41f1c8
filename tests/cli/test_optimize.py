"""``nhwc optimize``: its report, what it writes, and what it refuses."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from api.test_deciding import measured
from cli.conftest import Ran
from typer.testing import CliRunner

import nhwc
from nhwc.api import load_plan, proving
from nhwc.api.benching import BenchReport
from nhwc.cli.main import app
from nhwc.timing import Benchmark

MODEL = """
import torch
from torch import nn

def net():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), torch.randn(2, 3, 8, 8)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few_threads: None) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("NHWC_CACHE", "0")
    (tmp_path / "models_to_optimize.py").write_text(MODEL)

    def bench(*_inputs: Any, **options: Any) -> BenchReport:
        times = {"contiguous": 10.0, "channels_last": 8.0, "channels_last+kernels": 5.0, "engine": 20.0, "planned": 9.0}
        made = measured(**{name.replace("+", "__"): times[name] for name in options["variants"]})
        return BenchReport(**{name: getattr(made, name) for name in Benchmark.__dataclass_fields__})

    monkeypatch.setattr(proving, "bench", bench)
    yield tmp_path
    sys.modules.pop("models_to_optimize", None)


def run(*arguments: str) -> Ran:
    threads = torch.get_num_threads()
    result = CliRunner().invoke(app, ["optimize", *arguments])
    torch.set_num_threads(threads)
    return Ran(result.exit_code, result.stdout, result.stderr)


def test_it_says_what_was_chosen_and_writes_it(folder: Path) -> None:
    ran = run("models_to_optimize.py:net", "-o", "found.json")
    assert (ran.code, ran.err) == (0, "nhwc: wrote found.json\n")
    shown = " ".join(ran.out.split())
    assert shown.startswith(
        "Chosen: channels_last+kernels, the model, changed in place: 1.60 times as fast as channels_last"
    )
    assert "engine: slower than the better plain format." in shown
    report = nhwc.load_optimization(folder / "found.json")
    assert (report.chosen, report.target) == ("channels_last+kernels", "models_to_optimize.py:net")


def test_a_plan_is_saved_edited_and_tried(folder: Path) -> None:
    first = run("models_to_optimize.py:net", "--save-plan", "plan.json", "--budget", "0.001")
    assert (first.code, first.err) == (0, "nhwc: wrote plan.json\n")
    document = json.loads((folder / "plan.json").read_text())
    document["placements"] = [{**each, "format": "contiguous"} for each in document["placements"]]
    document["placements"][0]["format"] = "channels_last"
    (folder / "edited.json").write_text(json.dumps(document))
    second = run("models_to_optimize.py:net", "--plan", "edited.json", "--candidates", "planned")
    assert second.code == 0, second.err
    assert "planned: slower than the better plain format." in " ".join(second.out.split())
    document["tree"] = "0"
    (folder / "edited.json").write_text(json.dumps(document))
    stale = run("models_to_optimize.py:net", "--plan", "edited.json")
    assert stale.code == 2
    assert "does not hold here: it was made for another module tree" in stale.err


def test_an_audits_page_shows_a_plan_of_the_same_model_and_inputs(folder: Path) -> None:
    assert run("models_to_optimize.py:net", "--save-plan", "plan.json", "--budget", "0.001").code == 0

    def audited(*arguments: str) -> Ran:
        command = ["audit", "models_to_optimize.py:net", "--repeats", "0", "--plan", "plan.json", *arguments]
        result = CliRunner().invoke(app, command)
        return Ran(result.exit_code, result.stdout, result.stderr)

    assert audited("-o", "page.html").code == 0
    assert "The plan, under the squares" in (folder / "page.html").read_text()
    textual = audited()
    assert (textual.code, textual.err) == (
        2,
        "nhwc: --plan shows the plan on the HTML page alone; add -o page.html\n",
    )
    stale = audited("-o", "page.html", "--train")
    assert stale.code == 2
    assert "does not hold here: it was made for inference, and this is training" in stale.err


def test_plans_of_several_shapes_are_written_side_by_side_and_tried(folder: Path) -> None:
    asked = ["--batches", "1,2", "--shapes", "2x3x12x12", "--amp", "bf16", "--budget", "0.001"]
    first = run("models_to_optimize.py:net", *asked, "--save-plan", "plan.json")
    assert (first.code, first.err) == (0, "".join(f"nhwc: wrote plan{end}.json\n" for end in ("", "-2", "-3")))
    shown = " ".join(first.out.split())
    assert "forward passes of no tensor under autocast bfloat16" in shown
    assert "1x3x8x8: channels_last+kernels is 1.60 times as fast as channels_last" in shown
    assert "2x3x12x12: channels_last+kernels is 1.60 times as fast as channels_last" in shown
    plans = [load_plan(folder / f"plan{end}.json") for end in ("", "-2", "-3")]
    assert [plan.inputs[0].shape for plan in plans] == [(2, 3, 8, 8), (2, 3, 12, 12), (1, 3, 8, 8)]
    given = ["--plan", "plan.json", "--plan", "plan-2.json", "--candidates", "planned"]
    second = run("models_to_optimize.py:net", *asked, *given)
    assert second.code == 0, second.err
    assert "planned: slower than the better plain format." in " ".join(second.out.split())
    stale = run("models_to_optimize.py:net", *given)
    assert stale.code == 2
    assert "it was made with autocast bfloat16, and this is with off" in stale.err


def test_json_and_training(folder: Path) -> None:
    ran = run("models_to_optimize.py:net", "--train", "--format", "json", "--candidates", "channels_last+kernels")
    document = json.loads(ran.out)
    assert (document["format"], document["training"]) == ("nhwc-optimization", True)
    assert [each["name"] for each in document["candidates"]] == ["contiguous", "channels_last", "channels_last+kernels"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--candidates", ","], "--candidates names none"),
        (["--candidates", "nothing"], "there is no 'nothing'"),
        (["--budget", "0"], "--budget 0 is no number"),
        (["--margin", "x"], "--margin 'x' is no share"),
        (["-o", "found.html"], "its ending names no format"),
        (["--batches", "0"], "--batches '0' are no batch sizes; write 1,8"),
        (["--shapes", "2x3xx"], "--shapes '2x3xx' is no shape"),
        (["--amp", "fp8"], "--amp 'fp8' is unknown; use bf16 or fp16"),
    ],
)
def test_what_makes_no_sense_is_told_in_one_sentence(folder: Path, arguments: list[str], words: str) -> None:
    ran = run("models_to_optimize.py:net", *arguments)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert words in ran.err
