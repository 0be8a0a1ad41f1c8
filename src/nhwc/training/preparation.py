"""From a model to one that trains: device, memory format, statistics over ranks, averaged copy, wrapper, compiler."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from nhwc import distributed
from nhwc.conversion import convert
from nhwc.errors import TrainingError
from nhwc.training.averaging import Average
from nhwc.training.context import Context
from nhwc.training.settings import TrainSettings

CHANNELS_LAST, CONTIGUOUS = "channels_last", "contiguous"


@dataclass(frozen=True)
class Prepared:
    """wrapped: what a training step calls. core: the model itself, for evaluation without other ranks.

    average: follows the weights, where the settings ask for it. memory_format: of weights and batches; why: in words.
    kernels: whether nhwc's kernels shall be on.
    """

    wrapped: nn.Module
    core: nn.Module
    average: Average | None
    memory_format: str
    why: str
    kernels: bool


def prepare(model: nn.Module | Callable[[int], nn.Module], classes: int, context: Context) -> Prepared:
    """Build, move, convert and wrap the model.

    model: a module, or a function that makes one for a number of classes; it is initialised before it is converted,
        because random numbers follow the order of memory. Raises TrainingError where it makes none.
    """
    settings = context.settings
    core = model if isinstance(model, nn.Module) else model(classes)
    if not isinstance(core, nn.Module):
        raise TrainingError(
            f"the model must be a torch.nn.Module, or a function that makes one; got {type(core).__name__}"
        )
    core.to(context.device)
    memory_format, why = _choose(core, settings)
    convert(core, "auto" if memory_format == CHANNELS_LAST else CONTIGUOUS)
    parallel = context.world.size > 1
    if settings.sync_batch_norm and parallel:
        core = distributed.sync_batch_norm(core)
    average = None if settings.ema is None else copy.deepcopy(core)
    if context.sharded:
        core = wrapped = distributed.fully_shard(core)
        average = None if average is None else distributed.fully_shard(average)
    else:
        wrapped = distributed.data_parallel(core) if parallel else core
    if settings.compile:
        wrapped.compile()
    kernels = memory_format == CHANNELS_LAST and not settings.compile if settings.kernels is None else settings.kernels
    followed = None if average is None or settings.ema is None else Average(average, settings.ema)
    return Prepared(wrapped, core, followed, memory_format, why, kernels)


def _choose(model: nn.Module, settings: TrainSettings) -> tuple[str, str]:
    """The memory format, and why."""
    if settings.channels_last == "false":
        return CONTIGUOUS, "as asked for"
    if settings.channels_last == "true":
        return CHANNELS_LAST, "as asked for"
    count = sum(isinstance(each, nn.Conv2d | nn.ConvTranspose2d) for each in model.modules())
    if count:
        return CHANNELS_LAST, f"auto: {count} two-dimensional convolutions; nothing was measured"
    return CONTIGUOUS, "auto: the model has no two-dimensional convolution"
