"""What a run tells while it goes on: plain records, taken by any number of sinks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class StepRecord:
    """The steps since the record before, and the averages of the epoch so far.

    epoch, step, steps: both from 0 and 1 on, so that step == steps ends an epoch. update: steps since the run began.
    time_s: of one step; images_per_s: of all processes together. Losses and accuracies (in per cent) are of what the
    model said while it trained, averaged over images. top5 is over the best five classes, or all where there are fewer.
    """

    epoch: int
    step: int
    steps: int
    update: int
    time_s: float
    average_time_s: float
    images_per_s: float
    average_images_per_s: float
    loss: float
    average_loss: float
    top1: float
    average_top1: float
    top5: float
    average_top5: float
    lr: float


@dataclass(frozen=True)
class EvaluationRecord:
    """One evaluation: over which images, how long, and what came out (accuracies in per cent)."""

    epoch: int
    update: int
    images: int
    time_s: float
    loss: float
    top1: float
    top5: float
    averaged: bool = False


class Sink(Protocol):
    """Takes what a run tells. ``advance`` comes at every step, the rest as the settings say."""

    def note(self, text: str) -> None:
        """A sentence worth knowing."""

    def advance(self, stage: str, done: int, total: int) -> None:
        """How far training or evaluation is in this epoch."""

    def step(self, record: StepRecord) -> None: ...

    def evaluation(self, record: EvaluationRecord) -> None: ...

    def close(self) -> None: ...


def step_line(record: StepRecord) -> str:
    """One line of text.

    >>> step_line(  # doctest: +ELLIPSIS
    ...     StepRecord(0, 10, 5005, 10, 0.2, 0.25, 1000, 800, 6.9, 7.0, 0.1, 0.2, 0.5, 0.6, 0.1)
    ... )
    'epoch 0 [10/5005]  time 0.200 s (0.250)  1000 images/s (800)  loss 6.9000 (7.0000)  top-1 ...  lr 0.1'
    """
    return (
        f"epoch {record.epoch} [{record.step}/{record.steps}]"
        f"  time {record.time_s:.3f} s ({record.average_time_s:.3f})"
        f"  {_rate(record.images_per_s)} images/s ({_rate(record.average_images_per_s)})"
        f"  loss {_loss(record.loss)} ({_loss(record.average_loss)})"
        f"  top-1 {record.top1:.2f} % ({record.average_top1:.2f})"
        f"  top-5 {record.top5:.2f} % ({record.average_top5:.2f})"
        f"  lr {record.lr:.4g}"
    )


def evaluation_line(record: EvaluationRecord) -> str:
    """One line of text."""
    of = " of the averaged weights" if record.averaged else ""
    return (
        f"evaluation{of} after epoch {record.epoch}: loss {_loss(record.loss)}  top-1 {record.top1:.2f} %"
        f"  top-5 {record.top5:.2f} %  ({record.images} images in {record.time_s:.1f} s)"
    )


def _loss(value: float) -> str:
    return f"{value:.4f}" if abs(value) < 1e5 else f"{value:.3e}"


def _rate(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"
