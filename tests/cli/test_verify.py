"""``nhwc verify``: its report, its exit codes, and what it refuses."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from cli.conftest import Ran
from typer.testing import CliRunner

import nhwc
from nhwc.cli.main import app

MODELS = """
import torch
from torch import nn

def sound():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), torch.randn(2, 3, 8, 8)

class Windows(nn.Module):
    def forward(self, x):
        return x.as_strided((2, 3, 4, 4), (192, 64, 8, 1))

def depends():
    return Windows(), torch.randn(2, 3, 8, 8)

def raises():
    class Raises(nn.Module):
        def forward(self, x):
            raise ValueError("no\\n weights")
    return Raises(), torch.randn(2, 3, 8, 8)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few_threads: None) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "models_to_verify.py").write_text(MODELS)
    yield tmp_path
    sys.modules.pop("models_to_verify", None)


def run(*arguments: str) -> Ran:
    threads = torch.get_num_threads()
    result = CliRunner().invoke(app, ["verify", *arguments])
    torch.set_num_threads(threads)
    return Ran(result.exit_code, result.stdout, result.stderr)


def test_a_sound_model_passes(folder: Path) -> None:
    ran = run("models_to_verify.py:sound", "--train")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("Passed: channels_last computes what contiguous format computes.")
    assert sorted(path.name for path in folder.iterdir() if path.suffix == ".py") == ["models_to_verify.py"]


def test_a_model_that_depends_on_its_format_exits_with_one_and_leaves_a_file(folder: Path) -> None:
    ran = run("models_to_verify.py:depends", "--reproducer", "faults")
    assert ran.code == 1
    assert "aten.as_strided.default" in ran.out
    assert (folder / "faults" / "reproduce_as_strided.py").exists()
    assert "it was run alone and showed the fault" in " ".join(ran.out.split())


def test_json_on_stdout_and_in_a_file(folder: Path) -> None:
    shown = run("models_to_verify.py:sound", "--format", "json")
    assert json.loads(shown.out)["format"] == "nhwc-verification"
    saved = run("models_to_verify.py:sound", "-o", "proof.json", "--factor", "4", "--variants", "channels_last, as_is")
    assert saved.out.startswith("Passed: channels_last and as_is compute")
    report = nhwc.load_verification(folder / "proof.json")
    assert (report.factor, len(report.variants), report.passed) == (4.0, 2, True)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("models_to_verify.py:raises",), "the model raised ValueError: no"),
        (("models_to_verify.py:sound", "--factor", "0"), "--factor 0 is not above 0"),
        (("models_to_verify.py:sound", "--variants", ","), "--variants names no variant"),
        (("models_to_verify.py:sound", "--variants", "chanels_last"), "there is no 'chanels_last'"),
        (("models_to_verify.py:sound", "--format", "html"), "--format 'html' is unknown"),
        (("models_to_verify.py:sound", "--reproducer", "models_to_verify.py"), "is a file; name a folder"),
        (("models_to_verify.py:sound", "--nonsense"), "see nhwc verify --help"),
    ],
)
def test_bad_input_is_one_sentence(folder: Path, arguments: tuple[str, ...], sentence: str) -> None:
    ran = run(*arguments)
    assert ran.code == 2
    assert sentence in ran.err
    assert ran.err.count("\n") == 1
