"""What is said of a machine that moved under a measurement, and that little is said of one that did not."""

import random
import re

import pytest
from measure.machines import FakeClock, bimodal, drifting, quiet, regimes, spiky

from nhwc.measure.runner import Contender, Limits, run_rounds
from nhwc.measure.stability import drift, instabilities, two_speeds
from nhwc.timing import Load

TWO_CORES = Load(cores=2.0, threads=2)


def samples(factors: dict[str, list[float]], seed: int = 0) -> dict[str, list[float]]:
    """Times of 200 ms by the factors of each round, with two percent of noise."""
    numbers = random.Random(seed)
    return {name: [200.0 * each * quiet(numbers, 0) for each in values] for name, values in factors.items()}


def test_a_machine_that_slows_by_two_thirds_is_told() -> None:
    slowing = [1.0 + place / 45 for place in range(30)]
    (told,) = instabilities(samples({"a": slowing, "b": slowing}), "a")
    assert re.fullmatch(r"times drifted by [67]\d % from the first round to the last", told)


def test_a_machine_that_slows_by_a_fifth_is_not_since_pairing_takes_that_out() -> None:
    slowing = [1.0 + place / 150 for place in range(30)]
    assert instabilities(samples({"a": slowing, "b": slowing}), "a") == ()


def test_a_ratio_that_moves_is_told_though_the_baseline_holds_still() -> None:
    found = instabilities(samples({"a": [1.0] * 30, "b": [1.0 + place / 200 for place in range(30)]}), "a")
    assert [told.startswith("the ratio of b drifted by 1") for told in found] == [True]


def test_two_speeds_of_the_whole_machine_are_told() -> None:
    speeds = [1.6 if (place // 5) % 2 else 1.0 for place in range(40)]
    (told,) = instabilities(samples({"a": speeds, "b": speeds}), "a")
    assert re.fullmatch(r"times fell into two groups (59|6[01]) % apart", told)


def test_two_speeds_of_one_variant_are_told() -> None:
    speeds = [1.2 if place % 3 == 0 else 1.0 for place in range(40)]
    found = instabilities(samples({"a": [1.0] * 40, "b": speeds}), "a")
    assert [told.startswith("the ratio of b fell into two groups") for told in found] == [True]


@pytest.mark.slow
@pytest.mark.parametrize("noise", [quiet, bimodal, drifting, spiky, regimes])
def test_what_pairing_takes_out_is_seldom_held_against_a_machine(noise: object) -> None:
    told = 0
    for seed in range(60):
        clock = FakeClock(noise, seed)  # type: ignore[arg-type]
        a, b = Contender("a", lambda: 200.0), Contender("b", lambda: 180.0)
        run_rounds([a, b], "a", clock, Limits(budget_s=20.0), seed, now_s=clock.now_s)
        told += bool(instabilities({"a": a.samples_ms, "b": b.samples_ms}, "a", TWO_CORES))
    assert told <= 6


def test_a_model_that_slows_with_every_call_is_told_from_eight_rounds_on() -> None:
    slowing = {"a": [1.0 + place for place in range(8)], "b": [1.2 + place for place in range(8)]}
    assert instabilities(slowing, "a")[0].startswith("times drifted by")


def test_few_rounds_say_nothing_of_drift() -> None:
    assert instabilities({"a": [1.0, 2.0, 4.0, 8.0], "b": [1.0, 2.0, 4.0, 8.0]}, "a") == ()


@pytest.mark.parametrize(
    ("load", "words"),
    [
        (Load(2.0, 2, others=0.5), "other processes kept 0.5 of 2 cores busy, which the 2 threads"),
        (Load(2.0, 1, others=1.5), "other processes kept 1.5 of 2 cores busy, which the one thread"),
        (Load(2.0, 9, others=1.5), "9 threads shared 2 cores: measure with 2 at most"),
        (Load(2.0, 2, stolen=0.3), "the hypervisor took 0.3 cores' time away"),
        (Load(8.0, 8, throttled=0.25), "a CPU limit held the process back 25 % of the time"),
    ],
)
def test_other_load_is_told_with_what_to_do(load: Load, words: str) -> None:
    (told,) = instabilities({"a": [1.0], "b": [1.0]}, "a", load)
    assert told.startswith(words)


@pytest.mark.parametrize("load", [TWO_CORES, Load(8.0, 2, others=3.0), Load(2.0, 2, others=0.1)])
def test_load_that_leaves_enough_cores_is_no_matter(load: Load) -> None:
    assert instabilities({"a": [1.0], "b": [1.0]}, "a", load) == ()


def test_drift_is_the_change_along_the_trend_and_nothing_where_chance_makes_it() -> None:
    assert drift([0.01 * place for place in range(20)]) == pytest.approx(0.19)
    numbers = random.Random(0)
    assert drift([numbers.gauss(0.0, 1.0) for _ in range(30)]) == 0.0
    assert drift([]) == drift([1.0]) == 0.0


def test_two_speeds_is_the_distance_of_two_groups_and_nothing_where_they_make_one() -> None:
    numbers = random.Random(0)
    assert two_speeds([numbers.gauss(0.0, 0.01) + (0.2 if place % 2 else 0.0) for place in range(30)]) == (
        pytest.approx(0.2, abs=0.02)
    )
    assert two_speeds([numbers.gauss(0.0, 1.0) for _ in range(200)]) == 0.0
    assert two_speeds([numbers.random() for _ in range(200)]) == 0.0
    assert two_speeds([0.0] * 20 + [1.0]) == 0.0
