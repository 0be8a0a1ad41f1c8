"""What calls take alone, with their operands where a step would have left them.

In a step a call's first operand was just written, and is in the caches as far as it fits; its parameters were last read
a step ago, and are not. So before each timing other memory is written, and then the first operand once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from nhwc.measure.calls import CANNOT_RUN, cuda_devices, likeness, made_up, runner_on
from nhwc.measure.clock import Clock, clock_for
from nhwc.model import Call, Phase, TensorMeta
from nhwc.progress import Progress, quiet

#: Bytes written between timings: more than the level 2 caches of a machine with few cores hold.
_EVICTING_BYTES = 32 * 2**20
#: A call has had enough timings where the two least agree to this share, ...
_AGREE = 0.02
#: ... and after these milliseconds, or so many times the timings that were asked for, however far apart they are.
_ENOUGH_MS, _MORE = 100.0, 4


def call_key(call: Call) -> str:
    """A text that is equal for calls that run alike: operator, layouts of the operands, other arguments."""
    return repr(likeness(call))


def conversion_call(meta: TensorMeta, memory_format: str) -> Call:
    """The call that copies a tensor of rank 4 or 5 into a format, "contiguous", "channels_last" or its 3-D sister."""
    name = {"contiguous": "contiguous_format"}.get(memory_format, memory_format)
    keyword = ("memory_format", {"torch": "memory_format", "value": name})
    operator, both = "aten.clone.default", ((meta,), (meta,))
    plain = Call(0, operator, "aten::clone", *both, Phase.FORWARD, "", "", None)
    return replace(plain, arguments=({"tensor": 0},), keywords=(keyword,))


def time_calls(
    calls: Sequence[Call],
    repeats: int,
    budget_s: float,
    measured: Callable[[Call, float | None], None],
    progress: Progress = quiet,
    *,
    clock: Callable[[torch.device], Clock] = clock_for,
    now_s: Callable[[], float] = time.monotonic,
) -> None:
    """Tell ``measured`` the milliseconds of each call in turn, until ``budget_s`` seconds have passed.

    None where a call cannot run on made-up tensors. The least of ``repeats`` timings, 1 or more, after one that is not
    timed: what else the machine does only adds to them. A short call has up to four times as many, until its two least
    are within 2 % of each other. Without autograd; random state is as before afterwards. progress: told ("measure",
    done, calls).
    """
    started = now_s()
    with torch.random.fork_rng(devices=cuda_devices(calls)), torch.no_grad():
        for done, call in enumerate(calls):
            if now_s() - started > budget_s:
                return
            measured(call, _time_ms(call, repeats, clock))
            progress("measure", done + 1, len(calls))


def _time_ms(call: Call, repeats: int, clock: Callable[[torch.device], Clock]) -> float | None:
    try:
        tensors = [made_up(meta) for meta in call.inputs]
        run = runner_on(call, tensors)
        device = tensors[0].device if tensors else torch.device("cpu")
        other = torch.empty(_EVICTING_BYTES, dtype=torch.uint8, device=device)
        run()
        samples: list[float] = []
        while not _are_enough(samples, repeats):
            other.fill_(len(samples))
            if tensors and tensors[0].is_floating_point() and 0 not in tensors[0].stride():
                tensors[0].mul_(1)
            samples.append(clock(device).time_ms(run))
    except CANNOT_RUN:
        return None
    return min(samples)


def _are_enough(samples_ms: Sequence[float], repeats: int) -> bool:
    """Whether the least of ``samples_ms`` is known well enough."""
    if len(samples_ms) < repeats:
        return False
    if len(samples_ms) >= _MORE * repeats or sum(samples_ms) >= _ENOUGH_MS:
        return True
    least, *others = sorted(samples_ms)
    return bool(others) and others[0] <= least * (1.0 + _AGREE)
