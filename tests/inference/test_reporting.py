"""The report of an engine: what its steps are, how they were measured, and that sums are sums."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from inference.engines import with_statistics
from torch import nn

import nhwc
from nhwc.errors import EngineError
from nhwc.inference.limits import measured_limits
from nhwc.timing import Load


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 5, 2, 2)
        self.deep = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.up = nn.ConvTranspose2d(16, 8, 2, 2)
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu6(self.stem(x))
        x = self.up(x + self.deep(x))
        x = functional.lp_pool2d(x, 2.0, 2)
        result: torch.Tensor = self.head(x.mean((2, 3)))
        return result


@pytest.fixture(autouse=True)
def _nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NHWC_CACHE", "0")


@pytest.fixture
def engine() -> Any:
    return nhwc.engine(with_statistics(Net()), torch.randn(2, 3, 16, 12), budget_s=1.0, target="a net")


def test_every_step_is_told(engine: Any) -> None:
    report = engine.report(repeats=2)
    by_module = {step.module: step for step in report.steps}
    stem, deep, up, head = (by_module[name] for name in ("stem", "deep", "up", "head"))
    assert stem.operation == "convolution 5x5 /2 + relu6"
    assert stem.output == (2, 16, 8, 6)
    assert stem.flop == 2 * 2 * 16 * 8 * 6 * 3 * 25
    assert stem.moved_bytes == 4 * (2 * 3 * 16 * 12 + 16 * 75 + 16 + 2 * 16 * 8 * 6)
    assert deep.operation == "depthwise convolution 3x3 + add"
    assert up.operation == "transposed convolution 2x2 /2"
    assert up.flop == 2 * (2 * 16 * 8 * 6) * 8 * 4
    assert head.flop == 2 * 2 * 4 * 8
    assert [step.operation for step in report.fallbacks]
    assert all(step.ms >= 0 for step in report.steps)
    assert report.flop == sum(step.flop for step in report.steps)
    assert report.target == "a net"
    assert report.inputs == (((2, 3, 16, 12), "float32"),)
    assert report.accuracy is not None
    assert report.accuracy.holds
    assert report.weight_bytes > 0
    assert report.least_arena_bytes <= report.arena_bytes
    assert report.build_s > 0
    assert report.conditions is not None


def test_alternatives_are_what_was_timed_the_chosen_one_first(engine: Any) -> None:
    timed = [step for step in engine.report(repeats=1).steps if step.alternatives]
    assert timed
    for step in timed:
        assert step.alternatives[0].algorithm == step.algorithm
        times = [each.ms for each in step.alternatives]
        assert times == sorted(times)


def test_it_survives_json_and_shows_itself(engine: Any, tmp_path: Any) -> None:
    report = engine.report(repeats=1)
    assert nhwc.load_engine_report(report.save(tmp_path / "report.json")) == report
    text = str(report)
    assert "convolution 5x5 /2 + relu6" in text
    assert "Run by torch" in text
    assert repr(report).startswith("<EngineReport of a net: ")


class Meter:
    """A load meter that has seen what a test says."""

    seen: Load | None = None

    def read(self, threads: int) -> Load | None:
        return None if self.seen is None else replace(self.seen, threads=threads)


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (Load(cores=2, threads=2, others=1.9), "Times and shares are noisy: other processes kept 1.9 of 2 cores busy"),
        (Load(cores=64, threads=1, others=1.9, throttled=0.5), "noisy: a CPU limit held the process back 50 % of the"),
        (Load(cores=64, threads=1, others=1.9), None),
        (None, None),
    ],
    ids=["crowded", "limited", "quiet", "unknown"],
)
def test_a_busy_machine_is_told_in_one_line(
    engine: Any, monkeypatch: pytest.MonkeyPatch, seen: Load | None, words: str | None
) -> None:
    monkeypatch.setattr(Meter, "seen", seen)
    monkeypatch.setattr("nhwc.api.serving.LoadMeter", Meter)
    threads = torch.get_num_threads()
    torch.set_num_threads(2 if seen is not None and seen.threads == 2 else 1)
    try:
        report = engine.report(repeats=1)
    finally:
        torch.set_num_threads(threads)
    text = " ".join(str(report).split())
    assert len(report.notes) == (words is not None)
    assert (words in text) if words is not None else ("noisy" not in text)


def test_a_loaded_engine_reports_too(engine: Any, tmp_path: Any) -> None:
    loaded = nhwc.load_engine(engine.save(tmp_path / "net.engine", portable=False))
    report, wanted = loaded.report(repeats=1), engine.report(repeats=1)
    assert [(step.operation, step.flop, step.algorithm) for step in report.steps] == [
        (step.operation, step.flop, step.algorithm) for step in wanted.steps
    ]
    assert report.accuracy == wanted.accuracy
    assert report.weight_bytes == wanted.weight_bytes


def test_inputs_that_it_was_not_built_for_are_refused(engine: Any) -> None:
    with pytest.raises(EngineError, match="not built for these inputs"):
        engine.report(torch.randn(1, 3, 16, 12))


def test_the_limits_of_this_machine_are_possible() -> None:
    limits = measured_limits(1)
    assert 1e8 < limits.flop_per_s < 1e13
    sizes = [each.size_bytes for each in limits.copies]
    assert sizes == sorted(sizes)
    assert all(1e7 < each.bytes_per_s < 1e13 for each in limits.copies)
    assert limits.copy_bytes_per_s(1 << 40) == limits.copies[-1].bytes_per_s
    assert torch.get_num_threads() >= 1
