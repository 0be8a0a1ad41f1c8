"""What a call loses by its formats: the call as it ran against the same call with its operands in one format.

Both run on made-up tensors of the recorded shapes, strides and dtypes, in turn, without autograd. The better of
channels last throughout and contiguous throughout is what the call could have cost; the difference is the loss.
The copy of a channel shuffle by hand is set against torch.channel_shuffle in channels last, which may cost more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from nhwc.measure.clock import Clock, summarize
from nhwc.measure.formats import in_one_format, is_split
from nhwc.model import Call, Measurement, TensorMeta
from nhwc.strides import CHANNELS_LAST, strides_for

_NAMESPACES = ("aten", "prims", "mkldnn", "torchvision", "nhwc")


@dataclass(frozen=True)
class Lost:
    """Milliseconds that a call loses; ``call`` is the time of the call as it ran."""

    lost: Measurement
    call: Measurement


class NotReplayableError(Exception):
    """The call cannot be run again from what the trace holds."""


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
    with torch.random.fork_rng(devices=_cuda_devices(calls)), torch.no_grad():
        for done, call in enumerate(calls):
            sort = (call.index in whole, call.index in follows)
            key = (call.operator, _layouts(call.inputs), repr(call.arguments), repr(call.keywords), sort)
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


def _layouts(metas: Sequence[TensorMeta]) -> tuple[object, ...]:
    return tuple((meta.shape, meta.strides, meta.dtype, meta.device) for meta in metas)


def _cuda_devices(calls: Sequence[Call]) -> list[int]:
    devices = {torch.device(meta.device) for call in calls for meta in call.inputs}
    return sorted(device.index or 0 for device in devices if device.type == "cuda")


def _measure(call: Call, whole: bool, follows: bool, repeats: int, clock_for: Callable[[str], Clock]) -> Lost | None:
    try:
        actual = _runner(call, call.inputs)
        replacement = None if whole else _shuffle_instead(call)
        if whole:
            variants = []
        elif replacement is not None:
            variants = [replacement]
        else:
            ways = (True,) if follows else (True, False)
            variants = [_runner(call, [in_one_format(meta, channels_last=way) for meta in call.inputs]) for way in ways]
        clock = clock_for(call.inputs[0].device if call.inputs else "cpu")
        for run in (actual, *variants):
            run()
        samples = [[clock.time_ms(run) for run in (actual, *variants)] for _ in range(repeats)]
    except (NotReplayableError, RuntimeError, TypeError, ValueError, NotImplementedError, IndexError):
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
    tensor = _made_up(meta)
    return lambda: torch.channel_shuffle(tensor, groups)


def _runner(call: Call, metas: Sequence[TensorMeta]) -> Callable[[], object]:
    operator = _overload(call.operator)
    tensors = [_made_up(meta) for meta in metas]
    arguments = [_decode(value, tensors) for value in call.arguments]
    keywords = {key: _decode(value, tensors) for key, value in call.keywords}
    return lambda: operator(*arguments, **keywords)


def _overload(name: str) -> Any:
    namespace, _, rest = name.partition(".")
    operator, _, overload = rest.partition(".")
    if namespace not in _NAMESPACES:
        raise NotReplayableError(name)
    try:
        return getattr(getattr(getattr(torch.ops, namespace), operator), overload)
    except AttributeError as error:
        raise NotReplayableError(name) from error


def _made_up(meta: TensorMeta) -> torch.Tensor:
    """A tensor of that shape, strides and dtype: small random numbers, zeros for integers (always a valid index)."""
    if not meta.itemsize or not hasattr(torch, meta.dtype):  # no bytes: sparse, nested, opaque
        raise NotReplayableError(meta.dtype)
    dtype = getattr(torch, meta.dtype)
    extent = (
        1 + sum((size - 1) * stride for size, stride in zip(meta.shape, meta.strides, strict=True))
        if 0 not in meta.shape
        else 0
    )
    if dtype.is_floating_point and meta.itemsize >= 2:
        memory = torch.rand(max(extent, 1), device=meta.device, dtype=torch.float32).to(dtype)
    else:
        memory = torch.zeros(max(extent, 1), device=meta.device, dtype=dtype)
    return memory.as_strided(meta.shape, meta.strides)


def _decode(value: object, tensors: Sequence[torch.Tensor]) -> Any:
    if isinstance(value, list | tuple):
        return [_decode(item, tensors) for item in value]
    if not isinstance(value, Mapping):
        return value
    if "tensor" in value:
        return tensors[value["tensor"]]
    if "float" in value:
        return float(value["float"])
    if "torch" in value:
        if value["torch"] == "device":
            return torch.device(value["value"])
        return getattr(torch, value["value"])
    raise NotReplayableError(str(value))
