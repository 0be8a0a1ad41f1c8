"""What a call would save inside a context that changes how operators run."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

from nhwc.measure.calls import CANNOT_RUN, cuda_devices, likeness, runner
from nhwc.measure.clock import Clock, summarize
from nhwc.model import Call, Measurement


@dataclass(frozen=True)
class Trial:
    """A call as it ran, and what runs instead of it inside ``context``; name: of the context, for calls alike."""

    call: Call
    instead: Call
    name: Hashable
    context: Callable[[], AbstractContextManager[object]]


def savings(
    trials: Mapping[int, Trial],
    repeats: int,
    budget_s: float,
    progress: Callable[[int, int], None] | None = None,
    *,
    clock_for: Callable[[str], Clock] = Clock,
    now_s: Callable[[], float] = time.monotonic,
) -> dict[int, Measurement]:
    """Key → milliseconds saved (below 0: lost) by each trial that can run before ``budget_s`` seconds have passed.

    Both run in turn on made-up tensors, without autograd, once untimed before each of ``repeats`` timings; contexts are
    entered and left outside the clock. Trials that look alike are measured once. Random state is as before afterwards.
    progress: told (trials done, trials in all) after each.
    """
    known: dict[object, Measurement | None] = {}
    results: dict[int, Measurement] = {}
    started = now_s()
    devices = cuda_devices([trial.call for trial in trials.values()])
    with torch.random.fork_rng(devices=devices), torch.no_grad():
        for done, (key, trial) in enumerate(trials.items(), start=1):
            sort = (trial.name, likeness(trial.call), likeness(trial.instead))
            if sort not in known:
                in_time = now_s() - started <= budget_s
                known[sort] = _measure(trial, repeats, clock_for) if in_time else None
            measured = known[sort]
            if measured is not None:
                results[key] = measured
            if progress is not None:
                progress(done, len(trials))
    return results


def _measure(trial: Trial, repeats: int, clock_for: Callable[[str], Clock]) -> Measurement | None:
    try:
        as_it_ran, inside = runner(trial.call, trial.call.inputs), runner(trial.instead, trial.instead.inputs)
        clock = clock_for(trial.call.inputs[0].device if trial.call.inputs else "cpu")
        saved = []
        for _ in range(repeats):
            as_it_ran()
            before_ms = clock.time_ms(as_it_ran)
            with trial.context():
                inside()
                saved.append(before_ms - clock.time_ms(inside))
    except CANNOT_RUN:
        return None
    return summarize(saved)
