"""What a run leaves in the hands of its caller."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from torch import nn

from nhwc.training.records import EvaluationRecord, StepRecord
from nhwc.training.shares import PARTS, Shares
from nhwc.training.wording import counted


@dataclass(frozen=True)
class TrainReport:
    """What a run did.

    model: trained, in the format that it was trained in. average: the model of averaged weights, or None.
    epochs: done, those before a resume too; updates: optimizer steps likewise. records: of the steps of this process's
    part of the run, as printed. evaluation: the last, best_top1: the best so far in per cent, or None without data to
    evaluate on. images, seconds: trained on in this part of the run, by all processes, without evaluation and saving.
    skipped: pictures that could not be read, with the reason. classes: their names, in the order of their numbers.
    """

    model: nn.Module = field(repr=False)
    average: nn.Module | None = field(repr=False)
    epochs: int
    updates: int
    records: tuple[StepRecord, ...] = field(repr=False)
    evaluation: EvaluationRecord | None
    best_top1: float | None
    images: int
    seconds: float
    shares: Shares
    memory_format: str
    kernels: tuple[str, ...] = field(repr=False)
    skipped: dict[str, str]
    classes: tuple[str, ...] = field(repr=False)
    folder: Path | None

    @property
    def images_per_s(self) -> float:
        """Of all processes together; 0 where nothing was trained."""
        return self.images / self.seconds if self.seconds else 0.0

    def summary(self, *, evaluated: bool = False) -> list[str]:
        """The report as lines of text; ``evaluated``: of one that only evaluated."""
        lines = [] if evaluated else [f"{counted(self.updates, 'step')}, {counted(self.epochs, 'epoch')}"]
        if self.seconds and lines:
            lines[0] += f"; {self.images_per_s:.1f} images/s in {self.memory_format}"
        told = [(part, self.shares.share(part)) for part in PARTS]
        known = [f"{part} {100 * share:.0f} %" for part, share in told if share is not None]
        if self.seconds:
            lines.append("time of the steps: " + ", ".join(known))
        if self.best_top1 is not None and not evaluated:
            lines.append(f"best top-1 {self.best_top1:.2f} %")
        if self.skipped:
            lines.append(f"{counted(len(self.skipped), 'picture')} could not be read and took no part")
        return lines
