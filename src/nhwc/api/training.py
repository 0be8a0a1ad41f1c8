"""The verb train: a model, settings, and what became of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import nn

from nhwc.errors import TrainingError
from nhwc.training import Sink, TrainReport, TrainSettings


def train(
    model: nn.Module | Callable[[int], nn.Module],
    settings: TrainSettings,
    *,
    sinks: Sequence[Sink] = (),
) -> TrainReport:
    """Train a classifier of images in channels last, on one device or, under torchrun, on one of many.

    model: an ``nn.Module`` that maps images (N, C, H, W) to logits (N, classes), and is trained in place; or a function
        that makes one for a number of classes, called after seeding, so that the whole run repeats.
    settings: a ``TrainSettings``.
    sinks: objects that are told what happens, on rank 0, besides the log in ``settings.folder``: they have the methods
        of ``nhwc.training.Sink``. ``nhwc.training.TextLog(print)`` prints lines; without a sink nothing is printed.

    Python's, numpy's and torch's random state, and the training mode of each module, are afterwards as before.

    Ctrl-C and SIGTERM end the run after the step it is in, with a checkpoint; then KeyboardInterrupt is raised. Raises
    TrainingError, CheckpointError, DataError and ModelError, each in one sentence.

    >>> import torch
    >>> def linear(classes):
    ...     return torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(3, classes))
    >>> asked = TrainSettings("synthetic", samples=64, size=8, classes=2, epochs=2, batch=16)
    >>> train(linear, asked).updates
    8
    """
    given: object = settings
    if not isinstance(given, TrainSettings):
        raise TrainingError(
            f"settings are of type {type(given).__name__}; pass nhwc.TrainSettings(data, ...), or for a "
            "Dataset of your own write a loop with nhwc.data.Loader"
        )
    from nhwc.api.comparing import compare_formats
    from nhwc.training.run import run  # it loads torch.distributed, which no other verb needs

    return run(model, settings, sinks, compare_formats)
