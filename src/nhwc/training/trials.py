"""The steps that a run would take in one memory format, on a copy of its model, for whoever measures them."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import nn

from nhwc.training.context import Context
from nhwc.training.metrics import Sums
from nhwc.training.optimizers import make_optimizer
from nhwc.training.precision import Precision
from nhwc.training.preparation import Prepared, in_format
from nhwc.training.shares import Stopwatch
from nhwc.training.steps import Stepper


@dataclass(frozen=True)
class Trial:
    """Steps to compare: of ``model``, with the settings of ``context``, which stay as they are.

    model: initialised, on the device of the run, and not converted yet. shape: of a batch, (N, C, H, W). classes: of
    the data.
    """

    model: nn.Module
    shape: tuple[int, int, int, int]
    classes: int
    context: Context

    def contender(self, memory_format: str) -> tuple[Callable[[], None], bool]:
        """What takes one whole step on a copy of the model, and whether nhwc's kernels shall be on around it.

        The batch lies as the loader brings it. At a learning rate of 0 the step does all its work, and the weights
        stay. It raises KeyboardInterrupt where the run was asked to stop.
        """
        settings, device = self.context.settings, self.context.device
        prepared: Prepared = in_format(copy.deepcopy(self.model), memory_format, settings)
        prepared.wrapped.train()
        images = torch.randn(self.shape, device=device).to(memory_format=torch.channels_last)
        batches = itertools.repeat((images, torch.randint(self.classes, (self.shape[0],), device=device)))
        optimizer = make_optimizer(prepared.wrapped, replace(settings, lr=0.0))
        precision, watch = Precision(settings.amp, device), Stopwatch(device)
        stepper = Stepper(prepared, optimizer, precision, settings, self.classes, Sums(device), watch)

        def step() -> None:
            if self.context.stop.made:
                raise KeyboardInterrupt
            stepper.take(batches, 1, 0.0, 1)
            watch.forget()

        return step, prepared.kernels
