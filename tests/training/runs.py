"""Small runs that tests compare: models, settings, and a sink that keeps what it is told."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

import nhwc
from nhwc.training.records import EvaluationRecord, StepRecord


def tiny(classes: int, channels: int = 3) -> nn.Module:
    """A network with what makes resuming hard: running statistics and random numbers."""
    return nn.Sequential(
        nn.Conv2d(channels, 6, 3, padding=1),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Conv2d(6, 8, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(32, classes),
    )


def certain(classes: int, channels: int = 3) -> nn.Module:
    """The same without random numbers, whose order is a matter of the memory format."""
    model = tiny(classes, channels)
    model[3] = nn.Identity()
    return model


def settings(**changes: Any) -> nhwc.TrainSettings:
    """Three epochs of four steps."""
    shape: dict[str, Any] = {"data": "synthetic", "samples": 32, "size": 10, "classes": 3}
    usual: dict[str, Any] = {
        "batch": 8,
        "epochs": 3,
        "print_every": 1,
        "lr": 0.05,
        "tensorboard": False,
        "measure_s": 0,
    }
    return nhwc.TrainSettings(**{**shape, **usual, **changes})


def environment() -> dict[str, str]:
    """That of a process that a test starts: the package and the tests from here, one thread."""
    root = Path(__file__).resolve().parents[2]
    paths = os.pathsep.join(str(root / part) for part in ("src", "tests"))
    return {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}


@dataclass
class Kept:
    """Everything a run told. stop_at: Ctrl-C after so many steps."""

    stop_at: int | None = None
    notes: list[str] = field(default_factory=list)
    steps: list[StepRecord] = field(default_factory=list)
    evaluations: list[EvaluationRecord] = field(default_factory=list)
    advanced: list[tuple[str, int, int]] = field(default_factory=list)
    closed: bool = False
    taken: int = 0

    def note(self, text: str) -> None:
        self.notes.append(text)

    def advance(self, stage: str, done: int, total: int) -> None:
        self.advanced.append((stage, done, total))
        self.taken += stage != "evaluation"
        if self.taken == self.stop_at:
            self.stop_at = None
            signal.raise_signal(signal.SIGINT)

    def step(self, record: StepRecord) -> None:
        self.steps.append(record)

    def evaluation(self, record: EvaluationRecord) -> None:
        self.evaluations.append(record)

    def close(self) -> None:
        self.closed = True

    def losses(self) -> dict[int, tuple[float, float, float]]:
        """What the resumed run must repeat, by optimizer step."""
        return {each.update: (each.loss, each.average_loss, each.average_top1) for each in self.steps}

    def judged(self) -> dict[int, tuple[float, float]]:
        return {each.update: (each.loss, each.top1) for each in self.evaluations}


def train(asked: nhwc.TrainSettings, model: Callable[[int], nn.Module] = tiny, stop_at: int | None = None) -> Kept:
    """Run it; a Ctrl-C ends it without an exception. The random state of the caller stays."""
    kept = Kept(stop_at)
    before = torch.get_rng_state()
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where pytest runs in the background
    try:
        nhwc.train(model, asked, sinks=[kept])
    except KeyboardInterrupt:
        assert stop_at is not None
    finally:
        signal.signal(signal.SIGINT, handler)
        torch.set_rng_state(before)
    return kept


def resumed(folder: Path, stop_at: int, asked: Callable[..., nhwc.TrainSettings], **changes: Any) -> Kept:
    """What a run tells that is stopped after ``stop_at`` steps and goes on."""
    first = train(asked(folder=folder, **changes), stop_at=stop_at)
    second = train(asked(folder=folder, resume=True, **changes))
    return Kept(steps=first.steps + second.steps, evaluations=first.evaluations + second.evaluations)
