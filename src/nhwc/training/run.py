"""A training run from its settings to its report."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from torch import nn

from nhwc import distributed, kernels
from nhwc.data.workers import ended, is_ended
from nhwc.errors import TrainingError
from nhwc.training import ranks
from nhwc.training.choosing import Compare, choose
from nhwc.training.context import Context, device_of, require_agreement
from nhwc.training.evaluation import same_modes
from nhwc.training.finding import find
from nhwc.training.loop import Training
from nhwc.training.occupying import alone
from nhwc.training.preparation import build, prepare
from nhwc.training.randomness import own_random_state, seed_everything
from nhwc.training.records import Sink
from nhwc.training.result import TrainReport
from nhwc.training.settings import TrainSettings
from nhwc.training.sources import open_sources, require_enough
from nhwc.training.spelling import spelled
from nhwc.training.stopping import listening
from nhwc.training.trials import Trial


def run(
    model: nn.Module | Callable[[int], nn.Module],
    settings: TrainSettings,
    sinks: Sequence[Sink] = (),
    compare: Compare | None = None,
) -> TrainReport:
    """Train ``model`` as ``settings`` say, in this process or, under torchrun, as one of several.

    sinks: take what the run tells, on rank 0. compare: sets both memory formats against each other, where the settings
    leave the choice to the run; without it a rule decides.

    Raises KeyboardInterrupt where the run was asked to stop, after its checkpoint is written; NhwcError, in one
    sentence, where it cannot start or go on.
    """
    with ExitStack() as around:
        around.enter_context(own_random_state())
        around.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", "cannot be read and is skipped")  # the run's log says it
        world = around.enter_context(distributed.joined(settings.device))
        require_agreement(world)
        stop = around.enter_context(listening())
        try:
            with ranks.failing_together():
                context = Context(settings, device_of(settings, world), world, stop)
                seed_everything(settings.seed)  # every rank builds the same model
                sources = open_sources(settings)
                require_enough(sources, context)
                core = build(model, sources.classes, context)
            said = around.enter_context(alone(settings, world))
            found = find(settings, first=world.first)
            trial = Trial(core, (settings.batch, *sources.shape), sources.classes, context)
            choice = choose(trial, compare, None if found is None else found.memory_format)
            prepared = prepare(core, choice.memory_format, context)
            around.enter_context(same_modes(prepared.core))
            if prepared.kernels:
                around.enter_context(kernels.use())
            with ranks.failing_together():
                training = Training(prepared, choice, sources, context)
            return training.run(found, [said] if said else [], sinks)
        except RuntimeError as error:
            if is_ended(error):
                raise ended(error) from error
            if not ranks.is_lost(error):
                raise
            first = str(error).partition("\n")[0]
            raise TrainingError(
                f"rank {world.rank} lost another process of the run ({first}); the message of that one says why, and "
                f"{spelled('resume')} goes on from the last checkpoint"
            ) from error
