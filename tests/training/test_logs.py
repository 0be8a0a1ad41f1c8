"""What a run tells: lines, JSON lines that survive a kill, TensorBoard."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from training.runs import Kept, settings, tiny, train

import nhwc
from nhwc.errors import TrainingError
from nhwc.training import JsonLog, TextLog
from nhwc.training.logs import TensorBoard, cut_after
from nhwc.training.records import EvaluationRecord, StepRecord, evaluation_line, step_line

STEP = StepRecord(0, 2, 4, 2, 0.25, 0.5, 32.0, 16.0, 1.5, 1.75, 50.0, 40.0, 100.0, 90.0, 0.1)
EVALUATION = EvaluationRecord(0, 4, 40, 1.5, 1.25, 75.0, 100.0)


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_lines_of_text() -> None:
    lines: list[str] = []
    log = TextLog(lines.append)
    log.note("a note")
    log.advance("epoch 0", 1, 4)
    log.step(STEP)
    log.evaluation(EVALUATION)
    log.close()
    speed = "time 0.250 s (0.500)  32.0 images/s (16.0)"
    assert lines == [
        "a note",
        f"epoch 0 [2/4]  {speed}  loss 1.5000 (1.7500)  top-1 50.00 % (40.00)  top-5 100.00 % (90.00)  lr 0.1",
        "evaluation after epoch 0: loss 1.2500  top-1 75.00 %  top-5 100.00 %  (40 images in 1.5 s)",
    ]
    averaged = EvaluationRecord(0, 4, 40, 1.5, 1.25, 75.0, 100.0, averaged=True)
    assert evaluation_line(averaged).startswith("evaluation of the averaged weights after epoch 0")
    exploded = replace(STEP, loss=3.25e29, average_loss=float("1e12"))
    assert "  loss 3.250e+29 (1.000e+12)  " in step_line(exploded)


def test_lines_of_json() -> None:
    lines: list[str] = []
    log = JsonLog(lines.append)
    log.note("a note")
    log.step(STEP)
    log.evaluation(EVALUATION)
    found = [json.loads(line) for line in lines]
    assert [each["kind"] for each in found] == ["note", "step", "evaluation"]
    assert (found[1]["loss"], found[1]["top5"], found[2]["top1"]) == (1.5, 100.0, 75.0)


def test_a_run_keeps_json_lines_in_its_folder(tmp_path: Path) -> None:
    kept = train(settings(folder=tmp_path, print_every=2))
    found = lines_of(tmp_path / "log.jsonl")
    assert found[0]["kind"] == "start"
    assert (found[0]["version"], found[0]["settings"]["folder"]) == (1, str(tmp_path))
    assert [each["loss"] for each in found if each["kind"] == "step"] == [each.loss for each in kept.steps]
    assert [each["step"] for each in found if each["kind"] == "step"] == [2, 4] * 3
    assert sum(each["kind"] == "evaluation" for each in found) == 3


def test_records_every_few_steps_are_means_over_them() -> None:
    one, four = train(settings()), train(settings(print_every=4))
    assert [each.step for each in four.steps] == [4, 4, 4]
    mean = sum(each.loss for each in one.steps[:4]) / 4
    assert four.steps[0].loss == pytest.approx(mean, rel=1e-12)
    assert four.steps[0].average_loss == one.steps[3].average_loss
    assert [each[:2] for each in four.advanced[:4]] == [("epoch 0", step) for step in (1, 2, 3, 4)]
    assert four.advanced[4] == ("evaluation", 1, 1)
    assert four.closed


def test_lines_of_steps_that_a_kill_took_back_go(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    lines = [
        '{"kind": "start"}',
        '{"kind": "step", "update": 3}',
        '{"kind": "note", "text": "?"}',
        '{"kind": "step", "update": 6}',
        '{"kind": "note"}',
    ]
    path.write_text("\n".join(lines) + '\n{"kind": "st')
    cut_after(path, 6)
    assert path.read_text().splitlines() == lines
    cut_after(path, 5)
    assert path.read_text().splitlines() == lines[:3]
    cut_after(path, 0)
    assert path.read_text().splitlines() == lines[:1]


@pytest.mark.parametrize("line", ["hello", "[]", "{}", '{"kind": "step"}', '{"kind": "step", "update": "1"}'])
def test_a_file_in_the_place_of_the_log_is_left_alone(line: str, tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(line + "\n")
    with pytest.raises(TrainingError, match="is no log of nhwc train; move it away"):
        train(settings(folder=tmp_path))
    assert (tmp_path / "log.jsonl").read_text() == line + "\n"


def test_the_log_of_a_resumed_run_reads_as_that_of_an_unbroken_one(tmp_path: Path) -> None:
    train(settings(folder=tmp_path / "whole"))
    train(settings(folder=tmp_path / "run", save_every=2), stop_at=3)
    (tmp_path / "run" / "last.pt").unlink()  # the checkpoint of the Ctrl-C: as if it had been a kill
    train(settings(folder=tmp_path / "run", resume=True))
    found, wanted = (
        [(each["update"], each["loss"]) for each in lines_of(tmp_path / name / "log.jsonl") if each["kind"] == "step"]
        for name in ("run", "whole")
    )
    assert found == wanted


class Writer:
    made: list[Writer] = []  # noqa: RUF012 - the fake keeps what was made of it

    def __init__(self, folder: str, purge_step: int | None) -> None:
        self.folder, self.purge_step, self.scalars, self.closed = folder, purge_step, [], False
        Writer.made.append(self)

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.scalars.append((name, value, step))

    def close(self) -> None:
        self.closed = True


def test_tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Writer
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    monkeypatch.setattr("nhwc.training.logs.installed", lambda: True)
    Writer.made.clear()
    kept = train(settings(folder=tmp_path, tensorboard=None, epochs=1))
    train(settings(folder=tmp_path, tensorboard=True, epochs=2, resume=True))
    first, second = Writer.made
    assert (first.folder, first.purge_step, second.purge_step) == (str(tmp_path / "tensorboard"), None, 5)
    assert [value for name, value, _ in first.scalars if name == "training/loss"] == [one.loss for one in kept.steps]
    assert ("evaluation/top1", kept.evaluations[0].top1, 4) in first.scalars
    assert first.closed


def test_tensorboard_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nhwc.training.logs.installed", lambda: False)
    with pytest.raises(TrainingError, match="tensorboard is not installed; pip install tensorboard"):
        TensorBoard(tmp_path, 0)
    with pytest.raises(TrainingError, match="tensorboard needs a folder"):
        train(settings(tensorboard=True))


def test_a_sink_is_closed_where_the_run_fails() -> None:
    kept = Kept()

    def fails(record: StepRecord) -> None:
        raise ValueError("no")

    kept.step = fails  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="no"):
        nhwc.train(tiny, settings(), sinks=[kept])
    assert kept.closed
    assert nhwc.kernels.active() == ()


def test_json_has_null_for_what_is_no_number() -> None:
    lines: list[str] = []
    JsonLog(lines.append).line("start", {"settings": {"lr": float("inf"), "mean": [float("nan"), 0.5]}})
    assert lines == ['{"kind": "start", "settings": {"lr": null, "mean": [null, 0.5]}}']
