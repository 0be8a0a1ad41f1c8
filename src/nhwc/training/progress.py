"""Where a run is, and the numbers of the epoch so far."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from nhwc.errors import TrainingError
from nhwc.training import ranks
from nhwc.training.metrics import Sums, means
from nhwc.training.records import StepRecord
from nhwc.training.spelling import spelled


@dataclass(frozen=True)
class Place:
    """epoch: from 0. step: optimizer steps done in it. update: optimizer steps since the run began."""

    epoch: int = 0
    step: int = 0
    update: int = 0

    @property
    def last_epoch(self) -> int:
        """The epoch of the last step that was done; 0 before there was one."""
        return self.epoch if self.step else max(self.epoch - 1, 0)

    def after_step(self) -> Place:
        return replace(self, step=self.step + 1, update=self.update + 1)

    def next_epoch(self) -> Place:
        return replace(self, epoch=self.epoch + 1, step=0)


class EpochNumbers:
    """Losses, hits and times of an epoch: of the steps since the last record, and of all of them.

    sums: of this rank since the last record; a step adds to it. Everything else is the same on each rank.
    images, seconds: of all records that were made here.
    """

    def __init__(self, device: torch.device) -> None:
        self.sums = Sums(device)
        self.images, self.seconds = 0, 0.0
        self._whole = torch.zeros_like(self.sums.values, dtype=torch.float64, device="cpu")
        self._times = {"since": 0.0, "whole": 0.0}
        self._counts = {"since": 0, "whole": 0}

    def clear(self) -> None:
        """An epoch begins."""
        self.sums.clear()
        self._whole.zero_()
        self._times, self._counts = {"since": 0.0, "whole": 0.0}, {"since": 0, "whole": 0}

    def add_step(self, seconds: float) -> None:
        self._times["since"] += seconds
        self._counts["since"] += 1

    def record(self, place: Place, steps: int, rate: float) -> StepRecord:
        """The numbers since the last record, of all ranks, which are then forgotten, and of the epoch so far."""
        since = ranks.total(self.sums.values).cpu()
        self.sums.clear()
        self._whole += since
        self._times["whole"] += self._times["since"]
        self._counts["whole"] += self._counts["since"]
        now, all_ = means(since), means(self._whole)
        self.images += now.images
        self.seconds += self._times["since"]
        made = StepRecord(
            epoch=place.epoch,
            step=place.step,
            steps=steps,
            update=place.update,
            time_s=self._times["since"] / max(self._counts["since"], 1),
            average_time_s=self._times["whole"] / max(self._counts["whole"], 1),
            images_per_s=_rate(now.images, self._times["since"]),
            average_images_per_s=_rate(all_.images, self._times["whole"]),
            loss=now.loss,
            average_loss=all_.loss,
            top1=now.top1,
            average_top1=all_.top1,
            top5=now.top5,
            average_top5=all_.top5,
            lr=rate,
        )
        self._times["since"], self._counts["since"] = 0.0, 0
        return made

    def require_finite(self, place: Place, kept: bool) -> None:
        """Raise TrainingError where a loss since the last record is no number, on any rank; ``kept`` as below."""
        loss = float(ranks.total(self.sums.values)[0])
        if not math.isfinite(loss):
            raise no_number(loss, place, kept)

    def shared_state(self) -> dict[str, Any]:
        return {"whole": self._whole.clone(), "times": dict(self._times), "counts": dict(self._counts)}

    def own_state(self) -> torch.Tensor:
        """What this rank alone knows."""
        return self.sums.values.cpu().clone()

    def load(self, shared: dict[str, Any], own: torch.Tensor) -> None:
        self._whole.copy_(shared["whole"])
        self._times, self._counts = dict(shared["times"]), dict(shared["counts"])
        self.sums.values.copy_(own)


def no_number(loss: float, place: Place, kept: bool, only_evaluated: bool = False) -> TrainingError:
    """The error for a loss that is nan or infinite, of a run that learns or of one that evaluates a checkpoint.

    kept: whether there is a checkpoint.
    """
    if only_evaluated:
        return TrainingError(
            f"the loss is {loss}: the checkpoint gives no numbers; evaluate an earlier one, or without amp"
        )
    return TrainingError(f"the loss is {loss} at epoch {place.epoch}, step {place.step}; {_remedies(kept)}")


def _remedies(kept: bool) -> str:
    before = "; the last checkpoint is from before" if kept else ""
    return f"try a lower {spelled('lr')}, a warm-up, or bf16 for fp16{before}"


def require_numbers(model: nn.Module, place: Place, kept: bool) -> None:
    """Raise TrainingError, on all ranks, where a parameter that learns is nan or infinite; ``kept`` as above."""
    own = [each.to_local() if isinstance(each, DTensor) else each for each in model.parameters() if each.requires_grad]
    wrong = [~each.detach().isfinite().all() for each in own if each.is_floating_point()]
    if wrong and float(ranks.total(torch.stack(wrong).any().float())):
        raise TrainingError(
            f"the weights are no numbers after epoch {place.epoch}, step {place.step}; {_remedies(kept)}"
        )


def plain(place: Place) -> dict[str, int]:
    return asdict(place)


def _rate(images: int, seconds: float) -> float:
    return images / seconds if seconds > 0 else 0.0
