"""Calls timed alone: by a made-up clock, within a budget, and none that cannot run."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
import torch

from nhwc.measure import Clock, call_key, conversion_call, time_calls
from nhwc.model import Call, Phase, TensorMeta
from nhwc.strides import strides_for

SHAPE = (2, 8, 4, 4)


def call(operator: str = "aten.relu.default", memory_format: str = "contiguous", dtype: str = "float32") -> Call:
    meta = TensorMeta(SHAPE, strides_for(SHAPE, memory_format), dtype, "cpu", 0, 0, 4)
    return Call(0, operator, operator, (meta,), (meta,), Phase.FORWARD, "", "", None, arguments=({"tensor": 0},))


class MadeUp(Clock):
    """Runs nothing; answers times in turn."""

    def __init__(self, times: Iterator[float]) -> None:
        super().__init__("cpu")
        self.times = times
        self.asked = 0

    def time_ms(self, call: Callable[[], object]) -> float:
        self.asked += 1
        return next(self.times)


def test_the_least_of_the_timings_counts() -> None:
    clock, found = MadeUp(iter([50.0, 30.0, 40.0])), []
    time_calls([call()], 3, 10.0, lambda _, ms: found.append(ms), clock=lambda _: clock)
    assert found == [30.0]


@pytest.mark.parametrize(
    ("times_ms", "asked"),
    [
        ([1000.0, 500.0, 700.0], 3),
        ([30.0, 40.0, 20.0, 25.0], 4),
        ([0.5, 0.4, 0.3, 0.2, 0.203], 5),
        ([0.5 * 0.9**place for place in range(12)], 12),
    ],
    ids=["long", "100 ms together", "the two least agree", "they never do"],
)
def test_short_calls_are_timed_until_the_least_is_known(times_ms: list[float], asked: int) -> None:
    clock = MadeUp(iter([*times_ms, 0.2]))
    time_calls([call()], 3, 10.0, lambda *_: None, clock=lambda _: clock)
    assert clock.asked == asked


def test_one_timing_agrees_with_nothing() -> None:
    clock = MadeUp(iter([0.2, 0.2, 0.1]))
    time_calls([call()], 1, 10.0, lambda *_: None, clock=lambda _: clock)
    assert clock.asked == 2


def test_the_budget_ends_the_measuring() -> None:
    now, told, seen = itertools.count(), [], []
    time_calls(
        [call()] * 5,
        1,
        2.5,
        lambda _, ms: told.append(ms),
        lambda *stage: seen.append(stage),
        clock=lambda _: MadeUp(itertools.repeat(1.0)),
        now_s=lambda: float(next(now)),
    )
    assert told == [1.0, 1.0]
    assert seen == [("measure", 1, 5), ("measure", 2, 5)]


def test_what_cannot_run_is_none_and_a_real_clock_measures_the_rest() -> None:
    found: list[float | None] = []
    calls = [call("aten.no_such_operator.default"), call(), call("other.relu.default"), call(dtype="int32")]
    time_calls(calls, 1, 10.0, lambda _, ms: found.append(ms))
    assert [ms is None for ms in found] == [True, False, True, False]


def test_random_state_is_as_before() -> None:
    before = torch.get_rng_state()
    time_calls([call()], 1, 10.0, lambda *_: None)
    assert torch.equal(torch.get_rng_state(), before)


def test_keys_tell_formats_apart_and_nothing_else() -> None:
    assert call_key(call()) == call_key(call())
    assert call_key(call()) != call_key(call(memory_format="channels_last"))
    assert call_key(call()) != call_key(call("aten.sigmoid.default"))


@pytest.mark.parametrize("target", ["contiguous", "channels_last"])
def test_a_conversion_makes_the_other_format(target: str) -> None:
    from nhwc.measure.calls import runner

    source = {"contiguous": "channels_last", "channels_last": "contiguous"}[target]
    meta = call(memory_format=source).inputs[0]
    result = runner(conversion_call(meta, target), [meta])()
    assert isinstance(result, torch.Tensor)
    assert result.stride() == strides_for(SHAPE, target)
