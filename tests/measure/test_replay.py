"""Replay on a clock that counts: what is measured, how often, against what, and what is left alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from torch import nn

from nhwc.measure import replay, time_step
from nhwc.measure.clock import Clock, summarize
from nhwc.model import Call, Measurement, Phase, TensorMeta
from nhwc.recorder import record

pytestmark = pytest.mark.usefixtures("few_threads")


@dataclass
class FakeClock:
    """Runs what it times and answers with the next of ``times_ms``, the last for ever."""

    times_ms: list[float]
    results: list[object] = field(default_factory=list)

    def __call__(self, device: str) -> FakeClock:
        assert device == "cpu"
        return self

    def time_ms(self, call: Callable[[], object]) -> float:
        self.results.append(call())
        return self.times_ms.pop(0) if len(self.times_ms) > 1 else self.times_ms[0]


def measured(calls: list[Call], clock: FakeClock, **options: object) -> dict[int, object]:
    settings = {"whole": frozenset(), "repeats": 1, "budget_s": 1e9, **options}
    return replay(calls, clock_for=clock, **settings)  # type: ignore[arg-type]


def last(*shape: int) -> torch.Tensor:
    return torch.randn(shape).to(memory_format=torch.channels_last)


def calls_of(step: Callable[..., object], *inputs: torch.Tensor) -> list[Call]:
    return list(record(step, *inputs).calls)


def call(operator: str, *inputs: TensorMeta, arguments: tuple[object, ...] = (), index: int = 0) -> Call:
    encoded = tuple({"tensor": place} for place in range(len(inputs))) + arguments
    return Call(index, operator, "", inputs, (), Phase.FORWARD, "", "", None, arguments=encoded)


def tensor(*shape: int, dtype: str = "float32", itemsize: int = 4) -> TensorMeta:
    return TensorMeta(shape, tuple(torch.empty(shape).stride()), dtype, "cpu", 0, 0, itemsize)


def test_the_loss_is_the_difference_to_the_better_format() -> None:
    clock = FakeClock([9, 4, 5, 11, 3, 6, 10, 5, 7])
    found = measured(calls_of(lambda x: x.softmax(1), last(2, 3, 4, 5)), clock, repeats=3)
    lost = found[0]
    assert lost.call == Measurement(10, 1.0, 3)
    assert lost.lost.median_ms == 5  # of 9 - 4, 11 - 3 and 10 - 5
    assert lost.lost.repeats == 3


def test_a_call_that_is_fastest_as_it_ran_loses_nothing() -> None:
    found = measured(calls_of(lambda x: x.softmax(1), last(2, 3, 4, 5)), FakeClock([1, 4, 5]))
    assert found[0].lost.median_ms == 0


def test_a_conversion_loses_all_its_time() -> None:
    calls = calls_of(lambda x: x.contiguous(), last(2, 3, 4, 5))
    clock = FakeClock([7])
    found = measured(calls, clock, whole=frozenset([0]), repeats=2)
    assert found[0].lost == found[0].call == Measurement(7, 0.0, 2)
    assert len(clock.results) == 2


def test_the_operands_lie_as_recorded_and_then_in_each_format() -> None:
    image, weight = last(2, 4, 5, 6), torch.randn(8, 4, 3, 3)
    calls = calls_of(lambda x: nn.functional.conv2d(x, weight), image)
    clock = FakeClock([1.0])
    measured(calls, clock)
    strides = [result.stride() for result in clock.results]
    assert strides == [(96, 1, 32, 8), (96, 1, 32, 8), (96, 12, 4, 1)]


def test_calls_that_look_alike_are_measured_once() -> None:
    calls = calls_of(lambda x: (x.softmax(1), x.softmax(1), x.softmax(2)), last(2, 3, 4, 5))
    clock = FakeClock([3, 1, 1, 3, 1, 1])
    found = measured(calls, clock)
    assert sorted(found) == [0, 1, 2]
    assert found[0] is found[1]
    assert found[2] is not found[0]
    assert len(clock.results) == 6


def test_alike_calls_of_which_one_is_a_conversion_are_told_apart() -> None:
    calls = calls_of(lambda x: (x.clone(), x.clone()), last(2, 3, 4, 5))
    found = measured(calls, FakeClock([5, 5, 2, 3]), whole=frozenset([0]))
    assert (found[0].lost.median_ms, found[1].lost.median_ms) == (5, 3)


def test_the_budget_ends_the_measurements_but_not_the_answers() -> None:
    ticks: Iterator[float] = iter([0.0, 1.0, 5.0, 11.0])
    calls = calls_of(lambda x: (x.softmax(1), x.softmax(2), x.softmax(3), x.softmax(1)), last(2, 3, 4, 5))
    clock = FakeClock([1.0])
    found = measured(calls, clock, budget_s=10.0, now_s=lambda: next(ticks))
    assert sorted(found) == [0, 1, 3]
    assert len(clock.results) == 6


def test_progress_is_told_after_every_call() -> None:
    told: list[tuple[int, int]] = []
    calls = calls_of(lambda x: (x + 1, x + 1), last(2, 3, 4, 5))
    measured(calls, FakeClock([1.0]), progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 2), (2, 2)]


UNREPLAYABLE = {
    "a generator": lambda: calls_of(lambda: torch.rand(2, generator=torch.Generator())),
    "an operator that is gone": lambda: [call("aten.no_such_operator.default", tensor(2, 3))],
    "an overload that is gone": lambda: [call("aten.add.NoSuch", tensor(2, 3))],
    "another library's operator": lambda: [call("c10d.barrier.default", tensor(2, 3))],
    "a higher-order operator": lambda: [call("wrap", tensor(2, 3))],
    "an unknown dtype": lambda: [call("aten.relu.default", tensor(2, dtype="float3"))],
    "no bytes": lambda: calls_of(lambda x: x * 2, torch.eye(3).to_sparse()),
    "arguments of the wrong shape": lambda: [call("aten.mm.default", tensor(2, 3), tensor(2, 3))],
    "a view that does not fit": lambda: [
        Call(
            0,
            "aten.view.default",
            "",
            (TensorMeta((2, 3, 4, 5), (60, 1, 15, 3), "float32", "cpu", 0, 0, 4),),
            (),
            Phase.FORWARD,
            "",
            "",
            None,
            arguments=({"tensor": 0}, [2, 60]),
        )
    ],
}


@pytest.mark.parametrize("kind", UNREPLAYABLE)
def test_what_cannot_run_again_is_left_out(kind: str) -> None:
    clock = FakeClock([1.0])
    assert measured(UNREPLAYABLE[kind](), clock) == {}
    assert clock.results == []


def test_random_state_is_untouched() -> None:
    calls = calls_of(lambda x: nn.functional.dropout(x).softmax(1), last(2, 3, 4, 5))
    before = torch.get_rng_state(), random.getstate(), repr(np.random.get_state())
    measured(calls, FakeClock([1.0]))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (random.getstate(), repr(np.random.get_state())) == before[1:]


def test_whole_numbers_are_valid_indices() -> None:
    table, index = torch.randn(5, 3), torch.tensor([[4, 2], [0, 1]])
    calls = calls_of(
        lambda x: (nn.functional.embedding(index, x), x[index], x.gather(0, index), x.index_select(0, index[0])), table
    )
    clock = FakeClock([1.0])
    assert len(measured(calls, clock)) == len(calls)
    (pooled,) = [
        each
        for each in calls_of(
            lambda x: nn.functional.max_unpool2d(*nn.functional.max_pool2d(x, 2, return_indices=True), 2),
            last(2, 3, 4, 4),
        )
        if each.name == "max_unpool2d"
    ]
    assert measured([pooled], clock)


def test_arguments_come_back_as_they_were() -> None:
    def step(x: torch.Tensor) -> object:
        return (
            x.clamp(min=float("-inf"), max=2.5),
            x.to(torch.float64, memory_format=torch.contiguous_format),
            torch.cat([x, x], dim=1),
            nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear"),
            x.sum((2, 3), keepdim=True, dtype=torch.float64),
            torch.zeros_like(x, device="cpu"),
        )

    calls = calls_of(step, last(2, 3, 4, 5))
    assert len(measured(calls, FakeClock([1.0]))) == len(calls)


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float64, torch.int64, torch.bool, torch.complex64, torch.uint8]
)
def test_every_kind_of_number_can_be_made_up(dtype: torch.dtype) -> None:
    clock = FakeClock([1.0])
    measured(calls_of(lambda x: x.clone(), torch.ones(2, 3, 4, 5).to(dtype)), clock)
    assert [result.dtype for result in clock.results] == [dtype] * 3


def test_no_graph_is_built_and_no_gradient_kept() -> None:
    clock = FakeClock([1.0])
    measured(calls_of(lambda x: x.softmax(1), last(2, 3, 4, 5).requires_grad_()), clock)
    assert not any(result.requires_grad for result in clock.results)


def test_results_of_alike_calls_add_up() -> None:
    calls = calls_of(lambda x: [x.softmax(1) for _ in range(4)], last(2, 3, 4, 5))
    found = measured(calls, FakeClock([5, 2, 3]))
    assert sum(lost.lost.median_ms for lost in found.values()) == 4 * 3


def test_the_median_and_the_range_between_the_quartiles() -> None:
    assert summarize([5.0]) == Measurement(5.0, 0.0, 1)
    assert summarize([4.0, 1.0, 3.0, 2.0, 5.0]) == Measurement(3.0, 2.0, 5)
    assert summarize([1.0, 2.0]) == Measurement(1.5, 0.5, 2)


def test_a_clock_runs_what_it_times_once() -> None:
    runs: list[int] = []
    assert Clock("cpu").time_ms(lambda: runs.append(1)) >= 0
    assert runs == [1]


def test_a_step_is_run_once_more_than_it_is_timed() -> None:
    runs: list[int] = []
    assert time_step(lambda: runs.append(1), "cpu", 3).repeats == 3
    assert len(runs) == 4
