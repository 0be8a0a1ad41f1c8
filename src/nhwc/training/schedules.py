"""The learning rate at each optimizer step: a function of the place alone, so that resuming needs no state of it."""

from __future__ import annotations

import math

from nhwc.training.settings import TrainSettings


def learning_rate(settings: TrainSettings, epoch: int, step: int, steps: int) -> float:
    """The rate of optimizer step ``step`` (from 0) of ``epoch`` (from 0), which has ``steps`` of them.

    It counts in epochs, so that a run that goes on with other batches or another number of processes, and so with other
    steps, goes on at the rate where it was. While warming up it rises linearly, and reaches ``settings.lr`` with the
    first step after. What follows starts then: "cosine" falls to 0 over what is left, "step" counts its epochs from the
    run's beginning.

    >>> run = TrainSettings("synthetic", epochs=4, lr=1.0, warmup_epochs=1)
    >>> [round(learning_rate(run, epoch, step, 2), 3) for epoch in range(4) for step in range(2)]
    [0.333, 0.667, 1.0, 0.933, 0.75, 0.5, 0.25, 0.067]
    """
    warmup, done = round(settings.warmup_epochs * steps), epoch * steps + step
    if done < warmup:
        return settings.lr * (done + 1) / (warmup + 1)
    if settings.schedule == "constant":
        return settings.lr
    if settings.schedule == "step":
        return settings.lr * settings.decay ** (epoch // settings.decay_every)
    whole = max(settings.epochs * steps - warmup, 1)
    return settings.lr * 0.5 * (1.0 + math.cos(math.pi * min((done - warmup) / whole, 1.0)))
