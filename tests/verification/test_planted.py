"""Every planted fault is caught, its operator named, and the file that was written shows it when run alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from verification.planted import Around

import nhwc
from nhwc.model import Phase
from nhwc.proof import Divergence, Outcome

pytestmark = pytest.mark.usefixtures("few_threads")

FAULTS = [
    ("wrong_values", Around("wrong_values"), False, "wrong_values"),
    ("wrong values, custom_op", Around("wrong_values_custom", 2.0), False, "wrong_values_custom"),
    ("backward", Around("square"), True, "square_backward"),
    ("backward, custom_op", Around("cube"), True, "cube_backward"),
    ("one channel", Around("one_channel", channels=1), False, "one_channel"),
    ("one channel, custom_op", Around("one_channel_custom", channels=1), False, "one_channel_custom"),
    ("NaN", Around("not_a_number"), False, "not_a_number"),
    ("NaN, custom_op", Around("not_a_number_custom"), False, "not_a_number_custom"),
    ("dtype", Around("other_dtype"), False, "other_dtype"),
    ("dtype, custom_op", Around("other_dtype_custom"), False, "other_dtype_custom"),
    ("aliasing with a consequence", Around("same_memory", after="in place"), False, "same_memory"),
    ("aliasing without a consequence", Around("same_memory"), False, "same_memory"),
    ("written operand", Around("writes_operand"), False, "writes_operand"),
]


def found(model: Around, train: bool, folder: Path) -> Divergence:
    report = nhwc.verify(model, torch.randn(2, 3, 6, 6), train=train, reproducer=folder)
    (variant,) = report.variants
    assert variant.outcome is Outcome.DIVERGED
    assert not report.passed
    assert variant.divergence is not None
    return variant.divergence


@pytest.mark.parametrize(
    ("model", "train", "operator"),
    # a process for each: the second way to register an operator has its turn with the slow tests
    [
        pytest.param(*fault[1:], id=fault[0], marks=pytest.mark.slow if "custom_op" in fault[0] else ())
        for fault in FAULTS
    ],
)
def test_a_planted_fault_is_caught_named_and_reproduced(
    model: Around, train: bool, operator: str, tmp_path: Path
) -> None:
    divergence = found(model, train, tmp_path)
    assert divergence.operator == f"planted.{operator}.default"
    assert divergence.phase is (Phase.BACKWARD if train else Phase.FORWARD)
    assert divergence.inputs[0].strides[1] == 1
    assert divergence.reproduces
    assert "nhwc" not in Path(divergence.reproducer).read_text(encoding="utf-8")


def test_the_file_exits_with_one_when_run_alone(tmp_path: Path) -> None:
    divergence = found(Around("wrong_values"), False, tmp_path)
    alone = subprocess.run([sys.executable, divergence.reproducer], capture_output=True, cwd=tmp_path, check=False)
    assert alone.returncode == 1, alone.stderr.decode()
    assert alone.stdout.decode().endswith("the fault shows\n")


def test_the_source_line_and_the_module_are_those_of_the_call(tmp_path: Path) -> None:
    divergence = found(torch.nn.Sequential(torch.nn.Identity(), Around("wrong_values")), False, tmp_path)
    assert divergence.module == "1"
    assert divergence.source is not None
    assert "getattr(torch.ops.planted" in divergence.source.text


@pytest.mark.parametrize("name", ["wrong_values", "not_a_number", "same_memory", "other_dtype"])
def test_no_file_is_written_without_a_folder(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    report = nhwc.verify(Around(name), torch.randn(2, 3, 6, 6))
    assert report.variants[0].divergence.reproducer == ""
    assert not list(tmp_path.iterdir())


def test_a_file_of_a_sound_operator_exits_with_zero(tmp_path: Path) -> None:
    divergence = found(Around("wrong_values"), False, tmp_path)
    path = Path(divergence.reproducer)
    path.write_text(path.read_text(encoding="utf-8").replace("+= 0.25", "+= 0.0"), encoding="utf-8")
    alone = subprocess.run([sys.executable, str(path)], capture_output=True, check=False)
    assert alone.returncode == 0, alone.stdout.decode() + alone.stderr.decode()


@pytest.mark.parametrize("name", ["wrong_values", "one_channel"])
def test_a_sound_path_of_a_planted_operator_passes(name: str) -> None:
    model = Around(name, channels=4)
    variants = ("as_is",) if name == "wrong_values" else ("channels_last",)
    assert nhwc.verify(model, torch.randn(2, 3, 6, 6), variants=variants).passed
