"""What a call loses by its formats: the call as it ran against the same call with its operands in one format.

Both run on made-up tensors of the recorded shapes, strides and dtypes, in turn, without autograd. The better of
channels last throughout and contiguous throughout is what the call could have cost; the difference is the loss.
The copy of a channel shuffle by hand is set against torch.channel_shuffle in channels last, which may cost more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from nhwc.measure.calls import CANNOT_RUN, cuda_devices, likeness, made_up, runner
from nhwc.measure.clock import Clock, summarize
from nhwc.measure.formats import in_one_format, is_split
from nhwc.model import Call, Measurement
from nhwc.strides import CHANNELS_LAST, strides_for


@dataclass(frozen=True)
class Lost:
    """Milliseconds that a call loses; ``call`` is the time of the call as it ran."""

    lost: Measurement
    call: Measurement


def replay(
    calls: Sequence[Call],
    whole: frozenset[int],
    repeats: int,
    budget_s: float,
    progress: Callable[[int, int], None] | None = None,
    *,
    follows: frozenset[int] = frozenset(),
    clock_for: Callable[[str], Clock] = Clock,
    now_s: Callable[[], float] = time.monotonic,
) -> dict[int, Lost]:
    """Call index → Lost, for every call that can be replayed before ``budget_s`` seconds have passed.

    whole: indices of the calls that would not be made at all in one format (pure conversions): all their time is
        lost. Calls that look alike are measured once.
    follows: indices of the calls that only suffer from a culprit: repaired, they would run in channels last, which is
        what they are set against, be it faster or slower; all others against the better of the two formats.
    repeats: timings of a call, 1 or more.
    progress: told (calls done, calls in all) after each.
    clock_for: device → its clock. now_s: the clock of the budget.

    Random state is as before afterwards. Operators of other libraries than torch's and torchvision's are not run: what
    they do besides computing is not known.
    """
    known: dict[object, Lost | None] = {}
    results: dict[int, Lost] = {}
    started = now_s()
    with torch.random.fork_rng(devices=cuda_devices(calls)), torch.no_grad():
        for done, call in enumerate(calls):
            sort = (call.index in whole, call.index in follows)
            key = (likeness(call), sort)
            if key not in known:
                if now_s() - started > budget_s:
                    known[key] = None
                else:
                    known[key] = _measure(call, *sort, repeats, clock_for)
            measured = known[key]
            if measured is not None:
                results[call.index] = measured
            if progress is not None:
                progress(done + 1, len(calls))
    return results


def _measure(call: Call, whole: bool, follows: bool, repeats: int, clock_for: Callable[[str], Clock]) -> Lost | None:
    try:
        actual = runner(call, call.inputs)
        replacement = None if whole else _shuffle_instead(call)
        if whole:
            variants = []
        elif replacement is not None:
            variants = [replacement]
        else:
            ways = (True,) if follows else (True, False)
            variants = [runner(call, [in_one_format(meta, channels_last=way) for meta in call.inputs]) for way in ways]
        clock = clock_for(call.inputs[0].device if call.inputs else "cpu")
        for run in (actual, *variants):
            run()
        samples = [[clock.time_ms(run) for run in (actual, *variants)] for _ in range(repeats)]
    except CANNOT_RUN:
        # made-up index values or missing custom classes: the finding then says that it was not measured
        return None
    as_ran = summarize([sample[0] for sample in samples])
    if not variants:
        return Lost(as_ran, as_ran)
    medians = [summarize([sample[place] for sample in samples]).median_ms for place in range(1, 1 + len(variants))]
    best = 1 + medians.index(min(medians))
    difference = summarize([sample[0] - sample[best] for sample in samples])
    if replacement is None and not follows:  # no single format that was measured slower is a gain of the mixed ones
        difference = replace(difference, median_ms=max(difference.median_ms, 0.0))
    return Lost(difference, as_ran)


def _shuffle_instead(call: Call) -> Callable[[], object] | None:
    """A channel shuffle by hand copies (N, C/groups, groups, H, W); what to pay for it is torch.channel_shuffle."""
    if call.operator != "aten.clone.default" or len(call.inputs[0].shape) != 5 or not is_split(call.inputs[0]):
        return None
    n, inner, groups, h, w = call.inputs[0].shape
    shape = (n, inner * groups, h, w)
    meta = replace(call.inputs[0], shape=shape, strides=strides_for(shape, CHANNELS_LAST), offset=0)
    tensor = made_up(meta)
    return lambda: torch.channel_shuffle(tensor, groups)
