"""Both memory formats set against each other for a training run, on copies of its model; kept per machine."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch

from nhwc import kernels
from nhwc.inference.remembering.fingerprint import fingerprint
from nhwc.kept_times import KeptTimes, folder
from nhwc.kernels.native import library
from nhwc.machine import LoadMeter, conditions
from nhwc.measure.clock import clock_for
from nhwc.measure.placement import Placement
from nhwc.measure.runner import Contender, Limits, run_rounds
from nhwc.measure.stability import instabilities, load_sentences
from nhwc.measure.stats import FEWEST_PAIRS, judge, paired_ratio, widened
from nhwc.recorder.state import StepGuard
from nhwc.timing import Ratio, Verdict
from nhwc.training.choosing import Comparison, in_short
from nhwc.training.collectives import RefusedCollectives
from nhwc.training.preparation import CHANNELS_LAST, CONTIGUOUS
from nhwc.training.settings import MOST_MEASURED_S
from nhwc.training.spelling import spelled
from nhwc.training.trials import Trial

#: What is kept of an answer.
_KEPT = {"ratio", "low", "high", "pairs"}
#: Moves the interval on either side, for what differs from process to process; as for ``nhwc.bench``.
_MARGIN = 0.05
_PRECISION, _MOST_ROUNDS = 0.03, 40
#: Steps that the fewest pairs and the warm-up of both formats take.
_FEWEST_STEPS = 2 * FEWEST_PAIRS + 6
#: What of the seconds the rounds may take; warm-up takes a quarter of that on top.
_SHARE = 0.7


class _NothingError(Exception):
    """Nothing can be said, for the reason in the message."""


class _FailsError(Exception):
    """Steps fail in channels last alone, for the reason in the message."""


def compare_formats(trial: Trial, seconds: float) -> Comparison:
    """Whether training steps of ``trial`` are proved slower in channels last, measured within about ``seconds``.

    An answer that an earlier process on this machine found for the same model, batch and settings is taken. Steps that
    fail in channels last alone count as slower. Random state, the model and the kernels' switch are afterwards as
    before. Raises what the model raises in contiguous.
    """
    times, key = _kept(trial)
    known = None if key is None else times.get(key)
    if known is not None and known.keys() >= _KEPT:
        ratio = Ratio(known["ratio"], known["low"], known["high"], int(known["pairs"]))
        return _comparison(ratio, "measured earlier on this machine", times)
    began = time.monotonic()
    try:
        with StepGuard():
            found, calm = _measured(trial, seconds)
    except _NothingError as nothing:
        return Comparison(slower=False, told=str(nothing), notes=tuple(times.messages))
    except _FailsError as fails:
        return Comparison(slower=True, told=str(fails), notes=tuple(times.messages))
    finally:
        _release(trial.context.device)
    if key is not None and calm:
        times.put(key, {"ratio": found.estimate, "low": found.low, "high": found.high, "pairs": found.pairs})
        times.save()
    return _comparison(found, f"measured in {time.monotonic() - began:.1f} s", times)


def _comparison(ratio: Ratio, how: str, times: KeptTimes) -> Comparison:
    verdict = judge(ratio)
    told = f"{how}, channels last is {ratio.estimate:.2f} times as fast ({ratio.low:.2f} to {ratio.high:.2f})"
    if verdict is Verdict.CANNOT_TELL:
        told += ", which cannot be told from 1"
    return Comparison(verdict is Verdict.SLOWER, told, tuple(times.messages))


def _measured(trial: Trial, seconds: float) -> tuple[Ratio, bool]:
    """How many times faster channels last is, and whether the machine was free for it.

    Other processes may go on beside the run as well: they make the interval wide, and the answer one for now alone.
    """
    device, began = trial.context.device, time.monotonic()
    clock = clock_for(device)
    contenders: dict[str, Contender] = {}
    for each in (CONTIGUOUS, CHANNELS_LAST):
        step, with_kernels = trial.contender(each)
        contenders[each] = Contender(each, step, context=kernels.use if with_kernels else nullcontext)
    first = contenders[CONTIGUOUS]
    with first.context():
        with _without_others(trial):
            first.step()  # fills caches and chooses algorithms, for many steps to come
        step_s = min(clock.time_ms(first.step) for _ in range(2)) / 1000.0  # something else may run during one
    spent_s = time.monotonic() - began
    if spent_s + _FEWEST_STEPS * step_s > seconds:
        raise _NothingError(_too_slow(spent_s, step_s))
    meter = LoadMeter()
    run_rounds(
        list(contenders.values()),
        CONTIGUOUS,
        clock,
        Limits(precision=_PRECISION, budget_s=_SHARE * (seconds - spent_s), most_rounds=_MOST_ROUNDS),
        before_round=Placement(0).change if device.type == "cpu" else None,
    )
    last = contenders[CHANNELS_LAST]
    if last.failure is not None:
        if "allocate" in str(last.failure):  # alone in memory, it may well work
            raise last.failure
        raise _FailsError(f"contiguous works, channels last does not: {in_short(last.failure)}") from last.failure
    load = meter.read(torch.get_num_threads()) if device.type == "cpu" else None
    unstable = instabilities({name: each.samples_ms for name, each in contenders.items()}, CONTIGUOUS)
    if unstable:
        raise _NothingError(f"the measurement proves nothing, since {unstable[0]}")
    return widened(paired_ratio(first.samples_ms, last.samples_ms), _MARGIN), load is None or not load_sentences(load)


def _too_slow(spent_s: float, step_s: float) -> str:
    """Why steps of ``step_s`` are not measured after ``spent_s`` for copies and the first, and what would help."""
    needed_s = math.ceil(1.2 * (spent_s + _FEWEST_STEPS * step_s))
    remedy = f"{spelled('measure_s')} {needed_s} would be enough"
    if needed_s > MOST_MEASURED_S:
        remedy = f"more than {spelled('measure_s')} {MOST_MEASURED_S} would be needed"
    return f"nothing was measured, since a step takes {step_s:.2g} s and all before it took {spent_s:.2g} s; {remedy}"


@contextmanager
def _without_others(trial: Trial) -> Iterator[None]:
    """A step that would wait for other processes, which take none, ends in _NothingError."""
    if trial.context.world.size == 1:
        yield
        return
    collectives = RefusedCollectives()
    try:
        with collectives:
            yield
    except Exception as error:
        if collectives.met:
            raise _NothingError("its steps wait for other processes, and are not measured") from error
        raise


def _kept(trial: Trial) -> tuple[KeptTimes, str | None]:
    """Earlier answers on this machine, and under what this one is kept; None where the model cannot be told apart."""
    context, settings = trial.context, trial.context.settings
    machine = f"{conditions(context.device)} {torch.version.git_version} {library.status().instruction_set}"
    times = KeptTimes("nhwc training formats", 1, "formats", machine, folder())
    told = fingerprint(trial.model, (torch.empty(trial.shape, device="meta"),), {})
    if times.path is None or told is None:
        return times, None
    asked = (trial.classes, settings.amp, settings.optimizer, settings.momentum > 0, settings.kernels)
    return times, f"{told} {asked}"


def _release(device: torch.device) -> None:
    """Give what the copies took back to the device, which the run fills next."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
