"""How well a model does on data that it does not learn from."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from nhwc.errors import TrainingError
from nhwc.formats import to_format
from nhwc.training import ranks
from nhwc.training.agreement import Agreement
from nhwc.training.context import Context
from nhwc.training.metrics import Sums, called, loss_of, means
from nhwc.training.precision import Precision
from nhwc.training.preparation import Prepared
from nhwc.training.progress import Place
from nhwc.training.records import EvaluationRecord

Advance = Callable[[str, int, int], None]


@contextmanager
def same_modes(model: nn.Module) -> Iterator[None]:
    """Each module is in training or evaluation mode afterwards as it was before."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode and no gradients inside; each module's own mode is back afterwards."""
    try:
        with same_modes(model), torch.no_grad():
            model.eval()
            yield
    finally:
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()  # without a backward it would hold the whole parameters from here on


class Judge:
    """Evaluates a model, or its average where there is one, on the batches of ``loader``: this rank's part of the data.

    averaged: whether what it evaluates are averaged weights. classes: of the data. shape: of an image, (C, H, W).
    """

    def __init__(
        self,
        prepared: Prepared,
        loader: Any,
        precision: Precision,
        context: Context,
        agreement: Agreement,
        classes: int,
        shape: tuple[int, int, int],
    ) -> None:
        self._model = prepared.core if prepared.average is None else prepared.average.model
        self.averaged = prepared.average is not None
        self._format = prepared.memory_format
        self._loader, self._precision, self._context = loader, precision, context
        self._agreement = agreement
        self._classes, self._shape = classes, shape

    @property
    def skipped(self) -> dict[str, str]:
        """Pictures that could not be read, with the reason."""
        return dict(self._loader.skipped)

    def close(self) -> None:
        """End the processes that read data."""
        self._loader.close()

    def judge(self, place: Place, advance: Advance) -> EvaluationRecord:
        """Loss (without smoothing) and accuracy over the data of all ranks, each image counted once.

        advance: called with ("evaluation", batches done, batches). Raises Stopping where that was asked for,
        TrainingError where no image can be read.
        """
        began = time.perf_counter()
        with evaluating(self._model):
            found = means(ranks.total(self._sums(advance)))
        if not found.images:
            raise TrainingError("none of the pictures to evaluate on can be read; look at their folder")
        return EvaluationRecord(
            epoch=place.last_epoch,
            update=place.update,
            images=found.images,
            time_s=time.perf_counter() - began,
            loss=found.loss,
            top1=found.top1,
            top5=found.top5,
            averaged=self.averaged,
        )

    def _sums(self, advance: Advance) -> Tensor:
        sums, done = Sums(self._context.device), 0
        # Without synchronised batch norm each rank has statistics of its own; checkpoints and DDP take the first's.
        ranks.take_firsts(self._model.buffers())
        most = ranks.most(len(self._loader), self._context.device)
        for images, targets in self._loader:
            with self._precision.autocast():
                output = called(self._model, to_format(images, self._format))
                loss, logits = loss_of(output, targets, 0.0, self._classes)
            sums.add(logits, targets, loss)
            done += 1
            advance("evaluation", done, most)
            self._agreement.after_step()
        for _ in range(most - done):  # as many steps as the rank with most batches
            if self._context.sharded:
                self._keep_up()
            self._agreement.after_step()
        return sums.values

    def _keep_up(self) -> None:
        """Call the model because other ranks do, on an image that counts for nothing."""
        blank = torch.zeros((1, *self._shape), device=self._context.device)
        with self._precision.autocast():
            called(self._model, to_format(blank, self._format))
