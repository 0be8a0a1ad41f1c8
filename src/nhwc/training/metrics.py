"""Loss and accuracy, added up on the device and over processes, and read only when somebody asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from nhwc.data.workers import is_ended
from nhwc.errors import ModelError, TrainingError
from nhwc.training import ranks

#: What one vector of sums holds, in this order.
_FIELDS = ("loss", "top1", "top5", "images")

#: The weight of the losses of heads that only help to train (googlenet, inception_v3).
_AUXILIARY = 0.3


@dataclass(frozen=True)
class Means:
    """Means over images: the loss, and accuracies in per cent."""

    loss: float
    top1: float
    top5: float
    images: int


class Sums:
    """Sums of loss and hits over images on ``device``, of this process alone: float64, or float32 where it has none."""

    def __init__(self, device: torch.device) -> None:
        self.values = torch.zeros(len(_FIELDS), dtype=_widest(device), device=device)

    @torch.no_grad()
    def add(self, logits: Tensor, targets: Tensor, loss: Tensor) -> None:
        """logits: (N, classes). targets: (N,) of class numbers. loss: the mean over N."""
        count = targets.shape[0]
        best = logits.topk(min(5, logits.shape[1]), dim=1).indices
        hits = best == targets[:, None]
        kept = self.values.dtype  # the loss may be of 16 bits, which cannot count to 257
        total = loss.detach().to(kept) * count
        hit = [hits[:, 0].sum().to(kept), hits.sum().to(kept)]
        self.values += torch.stack([total, *hit, self.values.new_full((), count)])

    def clear(self) -> None:
        self.values.zero_()


def _widest(device: torch.device) -> torch.dtype:
    try:
        torch.zeros(1, dtype=torch.float64, device=device)
    except (TypeError, RuntimeError):  # MPS has no float64
        return torch.float32
    return torch.float64


def means(values: Tensor) -> Means:
    """The means that a vector of sums stands for."""
    loss, top1, top5, images = values.tolist()
    count = max(images, 1)
    return Means(loss / count, 100 * top1 / count, 100 * top5 / count, int(images))


def called(model: nn.Module, images: Tensor) -> Any:
    """What the model returns for a batch. Raises ModelError where it raises."""
    try:
        return model(images)
    except Exception as error:
        if ranks.is_lost(error) or is_ended(error):
            raise
        hint = "; take a smaller batch" if isinstance(error, torch.OutOfMemoryError) else ""
        raise ModelError(
            f"the model raised {type(error).__name__} for images {tuple(images.shape)}: {error}{hint}"
        ) from error


def loss_of(output: Any, targets: Tensor, label_smoothing: float, classes: int) -> tuple[Tensor, Tensor]:
    """The cross-entropy of what a classifier returned, and its logits (N, classes).

    Models with auxiliary heads return tuples of logits while they train: the first counts in full, the others by 0.3.
    A dictionary's logits are under "logits" or "out". Raises TrainingError for logits of less than ``classes``.
    """
    first, *others = _logits(output)
    if first.shape[1] < classes:
        raise TrainingError(f"the model tells {first.shape[1]} classes apart, the data has {classes}; give it as many")
    loss = functional.cross_entropy(first, targets, label_smoothing=label_smoothing)
    for other in others:
        loss = loss + _AUXILIARY * functional.cross_entropy(other, targets, label_smoothing=label_smoothing)
    return loss, first


def _logits(output: Any) -> list[Tensor]:
    if isinstance(output, dict):
        output = next((output[key] for key in ("logits", "out") if key in output), output)
    found = [each for each in output if each is not None] if isinstance(output, tuple | list) else [output]
    if not found or any(not isinstance(each, Tensor) or each.dim() != 2 for each in found):
        kinds = ", ".join(str(tuple(each.shape)) if isinstance(each, Tensor) else type(each).__name__ for each in found)
        raise TrainingError(f"the model must return logits (N, classes), or a tuple of such; got {kinds or 'nothing'}")
    return found
