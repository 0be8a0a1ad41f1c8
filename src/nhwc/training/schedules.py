"""The learning rate at each optimizer step: a function of the step alone, so that resuming needs no state of it."""

from __future__ import annotations

import math

from nhwc.training.settings import TrainSettings


def learning_rate(settings: TrainSettings, step: int, steps_per_epoch: int) -> float:
    """The rate of optimizer step ``step`` (from 0), in a run of ``settings.epochs`` times ``steps_per_epoch`` steps.

    While warming up it rises linearly, and reaches ``settings.lr`` with the first step after. What follows starts then:
    "cosine" falls to 0 over the steps that are left, "step" counts its epochs from the run's beginning.

    >>> run = TrainSettings("synthetic", epochs=4, lr=1.0, warmup_epochs=1)
    >>> [round(learning_rate(run, step, 2), 3) for step in range(8)]
    [0.333, 0.667, 1.0, 0.933, 0.75, 0.5, 0.25, 0.067]
    """
    warmup = round(settings.warmup_epochs * steps_per_epoch)
    if step < warmup:
        return settings.lr * (step + 1) / (warmup + 1)
    if settings.schedule == "constant":
        return settings.lr
    if settings.schedule == "step":
        return settings.lr * settings.decay ** (step // steps_per_epoch // settings.decay_every)
    whole = max(settings.epochs * steps_per_epoch - warmup, 1)
    return settings.lr * 0.5 * (1.0 + math.cos(math.pi * min((step - warmup) / whole, 1.0)))
