"""Both memory formats set against each other before a run: without a trace, within its seconds, kept per machine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from training.runs import Kept, settings, tiny

import nhwc
from nhwc import distributed, kernels
from nhwc.api import comparing
from nhwc.api.comparing import compare_formats
from nhwc.measure.runner import Contender
from nhwc.timing import Stop
from nhwc.training.context import Context
from nhwc.training.stopping import StopRequest
from nhwc.training.trials import Trial

pytestmark = pytest.mark.usefixtures("few_threads")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NHWC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def trial(**changes: Any) -> Trial:
    context = Context(settings(**changes), torch.device("cpu"), distributed.World(), StopRequest())
    return Trial(tiny(3), (8, 3, 10, 10), 3, context)


class Timed:
    """Stands in for the rounds: channels last takes ``times`` as long as contiguous; counts its calls."""

    def __init__(self, *times: float) -> None:
        self.times, self.calls = times, 0

    def __call__(self, contenders: Sequence[Contender], *_: object, **__: object) -> Stop:
        self.calls += 1
        contiguous, last = contenders
        contiguous.samples_ms += [1.0] * len(self.times)
        last.samples_ms += self.times
        return Stop.ROUNDS


def rounds(monkeypatch: pytest.MonkeyPatch, *times: float) -> Timed:
    timed = Timed(*times)
    monkeypatch.setattr(comparing, "run_rounds", timed)
    monkeypatch.setattr(comparing, "load_sentences", lambda _load: [])
    return timed


def test_a_run_is_bit_for_bit_the_one_with_the_format_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "_MOST_ROUNDS", 6)
    measured = Kept()
    report = nhwc.train(tiny, settings(max_steps=3, measure_s=600.0), sinks=[measured])
    given = Kept()
    asked = "true" if report.memory_format == "channels_last" else "false"
    nhwc.train(tiny, settings(max_steps=3, channels_last=asked), sinks=[given])
    assert "auto: measured in " in measured.notes[0] or "the measurement proves nothing" in measured.notes[0]
    assert measured.losses() == given.losses()
    assert kernels.active() == ()


def test_random_state_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds(monkeypatch, *[1.0] * 8)
    asked = trial()
    before = torch.get_rng_state()
    compare_formats(asked, 600.0)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("time_ms", "slower", "sentence"),
    [
        (1.25, True, r"channels last is 0.80 times as fast \(0.76 to 0.84\)$"),
        (1.02, False, r"channels last is 0.98 times as fast \(0.93 to 1.03\), which cannot be told from 1$"),
        (0.5, False, r"channels last is 2.00 times as fast \(1.90 to 2.10\)$"),
    ],
)
def test_the_verdict_and_its_words(
    time_ms: float, slower: bool, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds(monkeypatch, *[time_ms] * 8)
    found = compare_formats(trial(), 600.0)
    assert found.slower is slower
    assert re.search(rf"^measured in [\d.]+ s, {sentence}", found.told)


def test_a_machine_that_changes_under_the_measurement_proves_nothing(
    monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    rounds(monkeypatch, *[2.0] * 8, *[1.5] * 8)
    found = compare_formats(trial(), 600.0)
    assert not found.slower
    assert found.told.startswith("the measurement proves nothing, since the ratio of channels_last ")
    assert not cache.exists()


def test_steps_that_do_not_fit_into_the_seconds_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    timed = rounds(monkeypatch, *[1.0] * 8)
    found = compare_formats(trial(), 1e-6)
    assert not found.slower
    assert found.told.startswith("nothing was measured, since a step takes ")
    assert found.told.endswith(" would be enough")
    assert timed.calls == 0
    assert comparing._too_slow(20.0, 0.5).endswith(" and all before it took 20 s; measure_s 35 would be enough")
    assert comparing._too_slow(20.0, 50.0).endswith("; more than measure_s 600 would be needed")


class Rows(nn.Module):
    """A step of this fails in channels last alone."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.view(images.shape[0], -1)[:, :3]


def test_a_model_that_fails_in_channels_last_alone_trains_in_contiguous(cache: Path) -> None:
    kept = Kept()
    report = nhwc.train(nn.Sequential(nn.Conv2d(3, 3, 3), Rows()), settings(max_steps=1, measure_s=600.0), sinks=[kept])
    assert report.memory_format == "contiguous"
    assert "(auto: contiguous works, channels last does not: ModelError: the model raised RuntimeError" in kept.notes[0]
    assert not cache.exists()


def test_too_little_memory_for_the_copies_says_nothing_about_the_formats(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(contenders: Sequence[Contender], *_: object, **__: object) -> None:
        contenders[1].failure = RuntimeError("can't allocate memory")

    monkeypatch.setattr(comparing, "run_rounds", full)
    with pytest.raises(RuntimeError, match="can't allocate"):
        compare_formats(trial(), 600.0)


def test_steps_that_wait_for_other_processes_are_not_measured() -> None:
    class Meeting(nn.Sequential):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            torch.distributed.all_reduce(images.detach().mean())
            raise AssertionError("the other process does not answer")

    alone = trial()
    world = distributed.World(0, 0, 2)
    together = Trial(Meeting(*tiny(3)), alone.shape, 3, replace(alone.context, world=world))
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        found = compare_formats(together, 600.0)
    finally:
        torch.distributed.destroy_process_group()
    assert found.told == "its steps wait for other processes, and are not measured"
    assert not found.slower


def test_an_answer_is_kept_for_the_same_model_batch_and_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    timed = rounds(monkeypatch, *[1.25] * 8)
    first, again = compare_formats(trial(), 600.0), compare_formats(trial(), 600.0)
    assert timed.calls == 1
    assert again.slower is first.slower is True
    assert again.told.startswith("measured earlier on this machine, channels last is 0.80 times as fast")
    compare_formats(trial(amp="bf16"), 600.0)
    assert timed.calls == 2


def test_an_answer_of_a_busy_machine_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    timed = rounds(monkeypatch, *[1.25] * 8)
    monkeypatch.setattr(comparing, "load_sentences", lambda _load: ["other processes"])
    compare_formats(trial(), 600.0)
    compare_formats(trial(), 600.0)
    assert timed.calls == 2


def test_a_cache_that_cannot_be_written_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NHWC_CACHE", str(tmp_path / "file"))
    rounds(monkeypatch, *[1.25] * 8)
    found = compare_formats(trial(), 600.0)
    assert found.slower
    assert [note for note in found.notes if "measured times cannot be kept" in note]
