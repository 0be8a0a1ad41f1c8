"""One optimizer step: batches, forward, backward, update."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from nhwc import distributed
from nhwc.errors import TrainingError
from nhwc.formats import to_format
from nhwc.training.metrics import Sums, called, loss_of
from nhwc.training.optimizers import set_learning_rate
from nhwc.training.precision import Precision
from nhwc.training.preparation import Prepared
from nhwc.training.settings import TrainSettings
from nhwc.training.shares import Stopwatch

_MOST_NAMED = 5


class Stepper:
    """Takes optimizer steps. sums: where losses and hits go; watch: where the time goes."""

    def __init__(
        self,
        prepared: Prepared,
        optimizer: torch.optim.Optimizer,
        precision: Precision,
        settings: TrainSettings,
        classes: int,
        sums: Sums,
        watch: Stopwatch,
    ) -> None:
        self._prepared = prepared
        self._optimizer = optimizer
        self._precision = precision
        self._settings = settings
        self._classes = classes
        self._sums = sums
        self._watch = watch

    def take(self, batches: Iterator[tuple[Tensor, Tensor]], count: int, rate: float, update: int) -> None:
        """Step number ``update`` (from 1) at learning rate ``rate``, on the mean gradient of ``count`` batches."""
        self._watch.start()
        for index in range(count):
            batch = next(batches, None)
            if batch is None:
                raise TrainingError("the data ended before its length said; too few of its pictures can be read")
            self._watch.mark("data")
            self._learn(*batch, count, last=index == count - 1)
        set_learning_rate(self._optimizer, rate)
        self._precision.step(self._optimizer)
        self._optimizer.zero_grad(set_to_none=True)
        if self._prepared.average is not None:
            self._prepared.average.update(self._prepared.core, update)
        self._watch.mark("optimizer")

    def _learn(self, images: Tensor, targets: Tensor, count: int, *, last: bool) -> None:
        model = self._prepared.wrapped
        with nullcontext() if last else distributed.accumulating(model):
            with self._precision.autocast():
                output = called(model, to_format(images, self._prepared.memory_format))
                loss, logits = loss_of(output, targets, self._settings.label_smoothing, self._classes)
            self._watch.mark("forward")
            self._precision.backward(loss / count if count > 1 else loss)
        self._watch.mark_backward()
        if last and isinstance(model, DistributedDataParallel):
            require_gradients(model.module)
        self._sums.add(logits, targets, loss)


def require_gradients(model: nn.Module) -> None:
    """Raise TrainingError where a parameter got no gradient: ranks then did not exchange those beside it either."""
    names = [name for name, each in model.named_parameters() if each.requires_grad and each.grad is None]
    if names:
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        raise TrainingError(
            f"the loss does not depend on {', '.join(names[:_MOST_NAMED])}{more}, so that the ranks cannot exchange "
            "gradients; take what is unused out of the model, or set requires_grad=False on it before the run"
        )
