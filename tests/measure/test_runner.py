"""Rounds, warm-up and stopping, on made-up clocks; and how often the interval is right over thousands of noisy runs."""

import contextlib
import gc
import itertools
import re
from collections.abc import Callable, Iterator

import pytest
from measure.machines import MACHINES, FakeClock, Noise, quiet

from nhwc.measure.runner import Contender, Limits, run_rounds
from nhwc.measure.stats import judge, paired_ratio, widened
from nhwc.timing import Ratio, Stop, Verdict


@pytest.fixture(autouse=True)
def _few_objects() -> Iterator[None]:
    """A run collects garbage once; over thousands of runs that would be all their time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def measure(noise: Noise, ratio: float, seed: int, limits: Limits) -> tuple[Ratio, Stop]:
    clock = FakeClock(noise, seed)
    base, variant = Contender("base", lambda: 200.0), Contender("variant", lambda: 200.0 / ratio)
    stop = run_rounds([base, variant], "base", clock, limits, seed, now_s=clock.now_s)
    return paired_ratio(base.samples_ms, variant.samples_ms), stop


RUNS = 600
#: Of 600 runs at a true rate of 95 % fewer than 553 cover the ratio once in a thousand times.
FEWEST_COVERED = 553


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("limits", [Limits(precision=0.02, budget_s=20.0), Limits(precision=1e-9, budget_s=8.0)])
def test_the_interval_covers_a_known_ratio_at_the_stated_rate(name: str, limits: Limits) -> None:
    ratios = [1.0, 1.05, 1.3, 0.8]
    found = [(ratios[seed % 4], measure(MACHINES[name], ratios[seed % 4], seed, limits)[0]) for seed in range(RUNS)]
    assert sum(ratio.low <= true <= ratio.high for true, ratio in found) >= FEWEST_COVERED


@pytest.mark.parametrize("name", MACHINES)
def test_identical_variants_are_seldom_called_different(name: str) -> None:
    limits = Limits(precision=0.02, budget_s=20.0)
    ratios = [measure(MACHINES[name], 1.0, seed, limits)[0] for seed in range(RUNS)]
    assert sum(judge(ratio) is not Verdict.CANNOT_TELL for ratio in ratios) <= RUNS - FEWEST_COVERED
    # the margin that users get is for what pairing cannot remove; noise alone stays inside it
    assert sum(judge(widened(ratio, 0.01)) is not Verdict.CANNOT_TELL for ratio in ratios) <= 0.01 * RUNS


@pytest.mark.parametrize("name", MACHINES)
def test_a_second_run_lies_within_the_interval_that_users_get(name: str) -> None:
    limits = Limits(precision=0.02, budget_s=20.0)
    pairs = [
        (measure(MACHINES[name], 1.2, seed, limits)[0], measure(MACHINES[name], 1.2, seed + RUNS, limits)[0])
        for seed in range(200)
    ]
    within = [widened(first, 0.01) for first, _ in pairs]
    assert (
        sum(first.low <= second.estimate <= first.high for first, (_, second) in zip(within, pairs, strict=True)) >= 180
    )


def test_equal_seeds_give_equal_samples() -> None:
    limits = Limits(budget_s=10.0)
    assert measure(quiet, 1.2, 7, limits) == measure(quiet, 1.2, 7, limits)
    assert measure(quiet, 1.2, 7, limits) != measure(quiet, 1.2, 8, limits)


def test_it_stops_where_the_intervals_are_narrow() -> None:
    ratio, stop = measure(quiet, 1.2, 0, Limits(precision=0.02, budget_s=1000.0))
    assert stop is Stop.NARROW
    assert ratio.half_width <= 0.02
    assert ratio.pairs < 30


def test_it_stops_within_its_budget() -> None:
    clock = FakeClock(quiet)
    contenders = [Contender("a", lambda: 200.0), Contender("b", lambda: 100.0)]
    stop = run_rounds(contenders, "a", clock, Limits(precision=1e-9, budget_s=9.0), now_s=clock.now_s)
    warmup_s = sum(sum(each.warmup_ms) for each in contenders) / 1000.0
    assert stop is Stop.BUDGET
    assert 8.0 < clock.now - warmup_s <= 9.3


def test_a_step_longer_than_the_budget_runs_once() -> None:
    clock = FakeClock(quiet)
    contenders = [Contender("a", lambda: 5000.0), Contender("b", lambda: 5000.0)]
    assert run_rounds(contenders, "a", clock, Limits(budget_s=1.0), now_s=clock.now_s) is Stop.BUDGET
    assert [len(each.samples_ms) for each in contenders] == [1, 1]


def test_it_stops_at_the_greatest_number_of_rounds() -> None:
    clock = FakeClock(quiet)
    contenders = [Contender("a", lambda: 200.0), Contender("b", lambda: 200.0)]
    limits = Limits(precision=1e-9, budget_s=1e9, most_rounds=30)
    assert run_rounds(contenders, "a", clock, limits, now_s=clock.now_s) is Stop.ROUNDS
    assert [len(each.samples_ms) for each in contenders] == [30, 30]


def test_every_round_runs_all_in_an_order_of_its_own() -> None:
    seen: list[str] = []

    def step(name: str) -> float:
        seen.append(name)
        return 200.0

    names = ["a", "b", "c"]
    contenders = [Contender(name, lambda name=name: step(name)) for name in names]  # type: ignore[misc]
    clock = FakeClock(quiet)
    run_rounds(contenders, "a", clock, Limits(precision=1e-9, budget_s=1e9, most_rounds=40), now_s=clock.now_s)
    rounds = [tuple(seen[-3 * n : len(seen) - 3 * n + 3]) for n in range(1, 41)]
    assert all(sorted(each) == names for each in rounds)
    assert len(set(rounds)) == 6


def test_warm_up_goes_on_while_steps_get_faster() -> None:
    times = iter([5000.0, 900.0, 700.0, 500.0, 300.0, 295.0, *[300.0] * 1000])
    clock = FakeClock(lambda _numbers, _step: 1.0)
    slow = Contender("slow", lambda: next(times))
    run_rounds(
        [slow, Contender("base", lambda: 300.0)],
        "base",
        clock,
        Limits(budget_s=100.0),
        now_s=clock.now_s,
    )
    assert slow.warmup_ms == [5000.0, 900.0, 700.0, 500.0, 300.0, 295.0]
    assert set(slow.samples_ms) == {300.0}


def test_short_steps_are_repeated_within_a_sample_and_led_in_untimed() -> None:
    ran = 0

    def step() -> float:
        nonlocal ran
        ran += 1
        return 0.5

    class Counting(FakeClock):
        def time_ms(self, call: object) -> float:
            before = ran
            call()  # type: ignore[operator]
            return 0.5 * (ran - before)

    short = Contender("short", step)
    limits = Limits(most_rounds=3, budget_s=1e9)
    run_rounds([short, Contender("long", step)], "long", Counting(quiet), limits)
    assert short.calls == 10
    assert short.samples_ms == [0.5, 0.5, 0.5]
    assert ran == 2 * (3 + 3 * (10 + 1))


def test_all_repeat_as_often_within_a_sample_so_that_models_age_alike() -> None:
    spent = 0.0

    def takes(ms: float) -> Callable[[], None]:
        def step() -> None:
            nonlocal spent
            spent += ms

        return step

    class Adding(FakeClock):
        def time_ms(self, call: Callable[[], object]) -> float:
            before = spent
            call()
            return spent - before

    contenders = [Contender("fast", takes(1.0)), Contender("slow", takes(40.0))]
    run_rounds(contenders, "slow", Adding(quiet), Limits(most_rounds=2, budget_s=1e9))
    assert [each.calls for each in contenders] == [5, 5]
    assert [each.samples_ms for each in contenders] == [[1.0, 1.0], [40.0, 40.0]]


class BreaksError(Exception):
    """Raised by steps here."""


def breaking(after: int) -> Contender:
    left = after

    def step() -> float:
        nonlocal left
        left -= 1
        if left < 0:
            raise BreaksError
        return 200.0

    return Contender("breaks", step)


@pytest.mark.parametrize("after", [0, 2, 8])
def test_one_that_raises_drops_out_and_the_others_go_on(after: int) -> None:
    clock, breaks = FakeClock(quiet), breaking(after)
    others = [Contender("base", lambda: 200.0), Contender("other", lambda: 100.0)]
    stop = run_rounds([breaks, *others], "base", clock, Limits(budget_s=60.0), now_s=clock.now_s)
    assert stop is Stop.NARROW
    assert isinstance(breaks.failure, BreaksError)
    assert breaks.samples_ms == []
    assert len(others[0].samples_ms) == len(others[1].samples_ms) >= 10


def test_a_baseline_that_is_left_alone_stops() -> None:
    clock, breaks = FakeClock(quiet), breaking(6)
    base = Contender("base", lambda: 200.0)
    assert run_rounds([base, breaks], "base", clock, Limits(), now_s=clock.now_s) is Stop.ALONE
    assert len(base.samples_ms) < 6


@pytest.mark.parametrize("after", [0, 8])
def test_a_baseline_that_raises_ends_it_and_leaves_the_collector_on(after: int) -> None:
    clock, breaks = FakeClock(quiet), breaking(after)
    assert gc.isenabled()
    with pytest.raises(BreaksError):
        run_rounds([Contender("a", lambda: 200.0), breaks], "breaks", clock, Limits(), now_s=clock.now_s)
    assert gc.isenabled()


def test_the_collector_stays_off_where_it_was_off() -> None:
    gc.disable()
    try:
        measure(quiet, 1.0, 0, Limits(budget_s=5.0))
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_progress_names_what_runs() -> None:
    told: list[tuple[str, float]] = []
    clock = FakeClock(quiet)
    contenders = [Contender("a", lambda: 200.0), Contender("b", lambda: 200.0)]
    limits = Limits(most_rounds=2)
    run_rounds(contenders, "a", clock, limits, progress=lambda *words: told.append(words), now_s=clock.now_s)
    assert [stage for stage, _ in told] == ["warming up a", "warming up b", "round 1", "round 2"]


def test_the_context_of_a_contender_is_entered_around_its_steps_outside_the_clock() -> None:
    told: list[str] = []

    @contextlib.contextmanager
    def switched_on() -> Iterator[None]:
        told.append("on")
        try:
            yield
        finally:
            told.append("off")

    class Listening(FakeClock):
        def time_ms(self, call: Callable[[], object]) -> float:
            told.append("clock starts")
            ms = super().time_ms(call)
            told.append("clock stops")
            return ms

    def step() -> float:
        told.append("step")
        return 200.0

    plain, other = Contender("plain", lambda: 200.0), Contender("other", step, context=switched_on)
    clock = Listening(quiet)
    run_rounds([plain, other], "plain", clock, Limits(budget_s=2.0, least_rounds=2), now_s=clock.now_s)
    words = "".join(
        {"on": "(", "off": ")", "clock starts": "<", "clock stops": ">", "step": "s"}[word] for word in told
    )
    warm_up, *rounds = re.findall(r"\([^)]*\)", words)
    assert re.fullmatch(r"\((<s>){3,}\)", warm_up)
    assert len(rounds) == len(other.samples_ms) > 0
    assert set(rounds) == {"(<s>)"}
    assert re.sub(r"\([^)]*\)", "", words).count("s") == 0  # no step of its own outside, and none of the other inside


def test_a_context_that_raises_ends_its_contender_alone() -> None:
    def refuses() -> contextlib.AbstractContextManager[None]:
        raise RuntimeError("no kernels here")

    contenders = [Contender("a", lambda: 200.0), Contender("b", lambda: 200.0, context=refuses)]
    clock = FakeClock(quiet)
    assert run_rounds(contenders, "a", clock, Limits(budget_s=5.0), now_s=clock.now_s) is Stop.ALONE
    assert str(contenders[1].failure) == "no kernels here"


def test_before_each_round_something_else_can_be_done_untimed() -> None:
    clock = FakeClock(quiet)
    rounds: list[tuple[int, int, int]] = []
    a, b = Contender("a", lambda: 200.0), Contender("b", lambda: 200.0)

    def before() -> None:
        rounds.append((len(a.samples_ms), len(b.samples_ms), clock.steps))

    run_rounds([a, b], "a", clock, Limits(precision=1e-9, budget_s=4.0), now_s=clock.now_s, before_round=before)
    assert [(done, done_too) for done, done_too, _ in rounds] == [(each, each) for each in range(len(a.samples_ms))]
    assert {later - earlier for (_, _, earlier), (_, _, later) in itertools.pairwise(rounds)} == {2}
