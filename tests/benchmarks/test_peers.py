"""The comparison with other runtimes: blocks, ratios, resuming, and contenders that die, on made-up workers."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import contenders
import peer_models
import peers
import pytest
import torch
from alternation import Entry, alternate, prepare, summary

from nhwc.machine import ChildError


class FakeWorker:
    """Answers with made-up times; ``dies_at``: the block in which it dies."""

    def __init__(self, ms: float, log: list[str], name: str, dies_at: int = -1, disagreement: float = 1e-6) -> None:
        self.ms, self.log, self.name, self.dies_at, self.disagreement = ms, log, name, dies_at, disagreement
        self.blocks = 0

    def ask(self, question: Any, timeout_s: float) -> Any:
        if "prepare" in question:
            return {"disagreement": self.disagreement, "prepared_s": 1.0, "ms": self.ms}
        self.log.append(self.name)
        if self.blocks == self.dies_at:
            raise ChildError(f"{self.name} died with signal 9")
        self.blocks += 1
        return {"ms": self.ms * (1.0 + 0.01 * (self.blocks % 3))}


def run(workers: dict[str, FakeWorker], **options: Any) -> list[Entry]:
    entries = [Entry(name) for name in workers]
    settings: dict[str, Any] = {"rounds": 8, "until_s": math.inf, "rest_s": 0.25, "seed": 0, "sleep": lambda _s: None}
    alternate(workers, entries, **{**settings, **options})
    return entries


def trio(log: list[str], **third: Any) -> dict[str, FakeWorker]:
    return {
        "eager_nchw": FakeWorker(20.0, log, "eager_nchw"),
        "eager_nhwc": FakeWorker(10.0, log, "eager_nhwc"),
        "openvino": FakeWorker(5.0, log, "openvino", **third),
    }


def test_ratios_are_the_baselines_time_over_the_contenders() -> None:
    written = {each["name"]: each for each in summary(run(trio([])), "eager_nchw")}
    assert written["eager_nchw"]["ratio"] is None
    ratio = written["openvino"]["ratio"]
    assert (ratio["estimate"], ratio["pairs"]) == (pytest.approx(4.0), 8)
    assert ratio["low"] <= 4.0 <= ratio["high"]


def test_every_round_runs_each_once_in_changing_order_with_a_rest_before_each() -> None:
    log: list[str] = []
    rests: list[float] = []
    run(trio(log), rounds=10, sleep=rests.append)
    orders = [tuple(log[start : start + 3]) for start in range(0, 30, 3)]
    assert all(sorted(order) == ["eager_nchw", "eager_nhwc", "openvino"] for order in orders)
    assert len(set(orders)) > 2
    assert rests == [0.25] * 30


def test_a_contender_that_dies_loses_its_samples_and_the_others_go_on() -> None:
    entries = {each.name: each for each in run(trio([], dies_at=3))}
    assert entries["openvino"].failure == "in round 4: openvino died with signal 9"
    assert entries["openvino"].samples_ms == []
    assert len(entries["eager_nhwc"].samples_ms) == len(entries["eager_nchw"].samples_ms) == 8
    written = {each["name"]: each for each in summary(list(entries.values()), "eager_nchw")}
    assert (written["openvino"]["ratio"], written["eager_nhwc"]["ratio"]["pairs"]) == (None, 8)


def test_without_a_baseline_there_is_no_ratio() -> None:
    workers = trio([])
    workers["eager_nchw"].dies_at = 1
    assert [each["ratio"] for each in summary(run(workers), "eager_nchw")] == [None, None, None]


def test_rounds_end_with_the_time_but_not_before_there_is_an_interval() -> None:
    entries = run(trio([]), rounds=50, until_s=0.0, now_s=lambda: 1.0)
    assert {len(each.samples_ms) for each in entries} == {6}


@pytest.mark.parametrize(("disagreement", "told"), [(0.02, "2.0e-02"), (math.nan, "nan")])
def test_a_contender_that_disagrees_is_told_and_not_timed(disagreement: float, told: str) -> None:
    entry, log = Entry("openvino"), list[str]()
    worker = FakeWorker(5.0, log, "openvino", disagreement=disagreement)
    prepare(worker, entry, {"model": "m"}, 1e-3, 300.0)
    assert entry.failure.startswith("disagrees with eager float32")
    assert told in entry.failure
    alternate({"openvino": worker}, [entry], rounds=3, until_s=9.0, rest_s=0.0, seed=0, sleep=lambda _s: None)
    assert (entry.samples_ms, log) == ([], [])


def test_a_block_has_as_many_steps_as_fill_its_time() -> None:
    entry = Entry("x")
    prepare(FakeWorker(7.0, [], "x"), entry, {}, 1e-3, 300.0)
    assert (entry.steps, entry.failure) == (43, "")


def test_a_contender_that_cannot_export_is_told() -> None:
    class Refuses:
        def ask(self, question: object, timeout_s: float) -> Any:
            raise ChildError("onnxruntime: UnsupportedOperatorError: no such operator")

    entry = Entry("onnxruntime")
    prepare(Refuses(), entry, {}, 1e-3, 300.0)
    assert entry.failure == "onnxruntime: UnsupportedOperatorError: no such operator"


@pytest.mark.usefixtures("few_threads")
def test_every_output_is_held_against_eager_float32() -> None:
    reference = torch.tensor([[1.0, -4.0]], dtype=torch.float64)
    assert contenders.disagreement(reference, torch.tensor([[1.0, -4.0]])) == 0.0
    assert contenders.disagreement(reference, [[1.0, -4.4]]) == pytest.approx(0.1)
    assert math.isnan(contenders.disagreement(reference, [[1.0, math.nan]]))


@pytest.mark.usefixtures("few_threads")
@pytest.mark.parametrize("name", ["eager_nchw", "eager_nhwc"])
def test_the_eager_contenders_run_a_model_as_every_process_builds_it(name: str) -> None:
    runner = contenders.Runner()
    with torch.no_grad(), pytest.raises(RuntimeError, match="nothing was prepared"):
        runner.answer({"block": 1})
    question = {"contender": name, "model": "squeezenet1_1", "batch": 1, "threads": 1, "seed": 3}
    with torch.no_grad():
        said = runner.answer({"prepare": question})
        block = runner.answer({"block": 2})
    assert said["disagreement"] < 1e-4
    assert block["ms"] > 0
    twice = [peer_models.build("squeezenet1_1", 1, 3)[1] for _ in range(2)]
    assert torch.equal(*twice)


RESULT = {"model": "resnet18", "batch": 1, "seconds": 1.0, "contenders": []}


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Models "measured" without measuring; raises KeyboardInterrupt at resnet50."""
    log: list[tuple[str, int]] = []

    def one(model: str, batch: int, names: Any, asked: Any, share_s: float) -> dict[str, Any]:
        if model == "resnet50" and ("resnet50", batch) not in log and not log.count(("again", 0)):
            raise KeyboardInterrupt
        log.append((model, batch))
        return {**RESULT, "model": model, "batch": batch}

    monkeypatch.setattr(peers, "one", one)
    return log


def test_a_killed_run_keeps_what_it_had_and_resumes(measured: list[tuple[str, int]], tmp_path: Path) -> None:
    file = tmp_path / "peers.json"
    arguments = ["--models", "resnet18,resnet50", "--batches", "1,8", "-o", str(file)]
    assert peers.main(arguments) == 130
    assert [each["model"] for each in json.loads(file.read_text())["results"]] == ["resnet18", "resnet18"]
    measured.append(("again", 0))
    assert peers.main([*arguments, "--resume"]) == 0
    assert measured[-2:] == [("resnet50", 1), ("resnet50", 8)]
    document = json.loads(file.read_text())
    assert [(each["model"], each["batch"]) for each in document["results"]] == [
        ("resnet18", 1),
        ("resnet18", 8),
        ("resnet50", 1),
        ("resnet50", 8),
    ]
    assert (document["format"], document["version"], document["protocol"]["dtype"]) == ("nhwc-peers", 1, "float32")


def test_samples_of_another_protocol_or_machine_are_not_added_to(
    measured: list[tuple[str, int]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "peers.json"
    arguments = ["--models", "resnet18", "--batches", "1", "--resume", "-o", str(file)]
    assert peers.main(arguments) == 0
    assert peers.main([*arguments, "--threads", "7"]) == 2
    assert "other protocol (threads)" in capsys.readouterr().err
    document = json.loads(file.read_text())
    document["conditions"]["processor"] = "another"
    file.write_text(json.dumps(document))
    assert peers.main(arguments) == 2
    assert "other conditions (processor)" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["not JSON", "[]", '{"format": "nhwc-bench", "version": 1}'])
def test_a_file_that_is_not_ours_is_not_written_over(
    measured: list[tuple[str, int]], tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "peers.json"
    file.write_text(text)
    assert peers.main(["--models", "resnet18", "--resume", "-o", str(file)]) == 2
    assert file.read_text() == text
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_what_is_not_installed_is_told_in_one_line_and_the_rest_runs(
    measured: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(peers, "missing", lambda name: ["openvino"] if name == "openvino" else [])
    assert peers.main(["--models", "resnet18", "--batches", "1"]) == 0
    told = [line for line in capsys.readouterr().out.splitlines() if "left out" in line]
    assert told == ["openvino is left out: openvino not installed (pip install -r benchmarks/requirements.txt)"]
    assert measured == [("resnet18", 1)]


def test_a_spent_budget_says_what_was_not_measured(
    measured: list[tuple[str, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert peers.main(["--models", "resnet18", "--budget", "0"]) == 0
    assert "2 of 2 not measured" in capsys.readouterr().out
    assert measured == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["--batches", "one"],
        ["--contenders", "tvm"],
        ["--contenders", "openvino"],
        ["--resume"],
    ],
)
def test_a_command_line_that_makes_no_sense_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        peers.main(arguments)
    assert left.value.code == 2


def test_an_unknown_model_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert peers.main(["--models", "resnet19"]) == 2
    assert capsys.readouterr().err == ("peers: --models: torchvision has no model 'resnet19' for pictures or video\n")


@pytest.mark.parametrize(("name", "count"), [("tutorial", 34), ("engine", 42)])
def test_lists_of_models_have_names(name: str, count: int) -> None:
    models = peers.parse(["--models", name]).models
    assert len(set(models)) == count
    assert set(models) <= peer_models.known()


def test_the_table_shows_ratios_with_intervals_and_failures() -> None:
    entries = run(trio([], dies_at=0))
    result = {**RESULT, "contenders": json.loads(json.dumps(summary(entries, "eager_nchw")))}
    lines = peers.table(result).splitlines()
    assert lines[0] == "resnet18, batch 1: 8 rounds in 1 s"
    assert lines[2].split()[-4:] == ["2.00", "(2.00", "to", "2.00)"]
    assert lines[3].endswith("in round 1: openvino died with signal 9")
    few = summary(run(trio([]), rounds=3), "eager_nchw")
    assert "too few rounds" in peers.table({**RESULT, "contenders": few})
