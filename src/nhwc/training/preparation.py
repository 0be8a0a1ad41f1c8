"""From a model to one that trains: device, memory format, statistics over ranks, averaged copy, wrapper, compiler."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace

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

    average: follows the weights, where the settings ask for it. memory_format: of weights and batches.
    kernels: whether nhwc's kernels shall be on.
    """

    wrapped: nn.Module
    core: nn.Module
    average: Average | None
    memory_format: str
    kernels: bool


def build(model: nn.Module | Callable[[int], nn.Module], classes: int, context: Context) -> nn.Module:
    """The model on the device of the run, initialised, and in the format that it was made in.

    model: a module, or a function that makes one for a number of classes. Raises TrainingError where it makes none.
    """
    core = model if isinstance(model, nn.Module) else model(classes)
    if not isinstance(core, nn.Module):
        raise TrainingError(
            f"the model must be a torch.nn.Module, or a function that makes one; got {type(core).__name__}"
        )
    return core.to(context.device)


def in_format(core: nn.Module, memory_format: str, settings: TrainSettings) -> Prepared:
    """The model, initialised before, since random numbers follow the order of memory, and converted in place."""
    convert(core, "auto" if memory_format == CHANNELS_LAST else CONTIGUOUS)
    kernels = memory_format == CHANNELS_LAST and not settings.compile if settings.kernels is None else settings.kernels
    return Prepared(core, core, None, memory_format, kernels)


def prepare(core: nn.Module, memory_format: str, context: Context) -> Prepared:
    """Convert and wrap what ``build`` made."""
    settings = context.settings
    converted = in_format(core, memory_format, settings)
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
    followed = None if average is None or settings.ema is None else Average(average, settings.ema)
    return replace(converted, wrapped=wrapped, core=core, average=followed)
