"""Which memory format a run is in: as asked for, of its checkpoint, measured, or by rule; the same on all ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from nhwc.errors import printable
from nhwc.training import ranks
from nhwc.training.context import Context
from nhwc.training.preparation import CHANNELS_LAST, CONTIGUOUS
from nhwc.training.settings import TrainSettings
from nhwc.training.trials import Trial
from nhwc.training.wording import counted


@dataclass(frozen=True)
class Comparison:
    """slower: whether channels last is proved slower than contiguous, or fails alone. told: what was found.

    notes: sentences for the log on what else went wrong.
    """

    slower: bool
    told: str
    notes: tuple[str, ...] = ()


#: Compares both formats within about so many seconds.
Compare = Callable[[Trial, float], Comparison]


@dataclass(frozen=True)
class Choice:
    """memory_format: "channels_last" or "contiguous"; why: in words; notes: sentences for the log."""

    memory_format: str
    why: str
    notes: tuple[str, ...] = ()


def choose(trial: Trial, compare: Compare | None, before: str | None) -> Choice:
    """The format for the model of ``trial``; every rank calls it, and the first measures.

    compare: None to measure nothing. before: the format of the checkpoint that the run goes on from, where it is known.
    Raises KeyboardInterrupt, on all ranks, where the measurement was asked to stop.
    """
    settings = trial.context.settings
    if settings.channels_last != "auto":
        return Choice(CHANNELS_LAST if settings.channels_last == "true" else CONTIGUOUS, "as asked for")
    if before is not None:
        return Choice(before, "auto: as before")
    count = sum(isinstance(each, nn.Conv2d | nn.ConvTranspose2d) for each in trial.model.modules())
    if not count:
        return Choice(CONTIGUOUS, "auto: the model has no two-dimensional convolution")
    rule = f"auto: {counted(count, 'two-dimensional convolution')}"
    unmeasured = _why_unmeasured(trial.model, settings, trial.context)
    if compare is None or unmeasured:
        return Choice(CHANNELS_LAST, f"{rule}; {unmeasured or 'nothing was measured'}")
    found = ranks.firsts(_compared(trial, compare) if trial.context.world.first else None)
    if found is None:
        raise KeyboardInterrupt
    if isinstance(found, str):
        return Choice(CHANNELS_LAST, f"{rule}; {found}")
    return Choice(CONTIGUOUS if found.slower else CHANNELS_LAST, f"auto: {found.told}", found.notes)


def _why_unmeasured(model: nn.Module, settings: TrainSettings, context: Context) -> str:
    """Why no measurement is made, empty where one is."""
    if not settings.measure_s or settings.evaluate_only:
        return "nothing was measured"
    if settings.compile:
        return "a compiled model is not measured"
    if context.sharded:
        return "a sharded model is not measured"
    if context.world.size > 1 and any(isinstance(each, nn.SyncBatchNorm) for each in model.modules()):
        return "its batch norm waits for other processes, and is not measured"
    return ""


def _compared(trial: Trial, compare: Compare) -> Comparison | str | None:
    """What was found; why the measurement failed; or None where it was asked to stop."""
    try:
        return compare(trial, trial.context.settings.measure_s)
    except KeyboardInterrupt:
        return None
    except Exception as error:  # noqa: BLE001 - the run itself shall say what its model raises
        return f"the measurement failed ({in_short(error)})"


def in_short(error: Exception) -> str:
    """Its kind and the beginning of its first line, for the log."""
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {printable(first[:200])}"
