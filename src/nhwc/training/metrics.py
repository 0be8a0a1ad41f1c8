"""Loss and accuracy, added up on the device and over processes, and read only when somebody asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from nhwc.errors import ModelError, TrainingError
from nhwc.training import ranks

#: What one vector of sums holds, in this order: doubles on the device.
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
    """Sums of loss and hits over images, doubles on ``device``, of this process alone."""

    def __init__(self, device: torch.device) -> None:
        self.values = torch.zeros(len(_FIELDS), dtype=torch.float64, device=device)

    @torch.no_grad()
    def add(self, logits: Tensor, targets: Tensor, loss: Tensor) -> None:
        """logits: (N, classes). targets: (N,) of class numbers. loss: the mean over N."""
        count = targets.shape[0]
        best = logits.topk(min(5, logits.shape[1]), dim=1).indices
        hits = best == targets[:, None]
        found = (loss.detach().double() * count, hits[:, 0].sum(), hits.sum(), loss.new_tensor(count))
        self.values += torch.stack([each.to(torch.float64) for each in found])

    def clear(self) -> None:
        self.values.zero_()


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
        if ranks.is_lost(error):
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
