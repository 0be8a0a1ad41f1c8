"""The interval and the verdict as pure functions."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from nhwc.measure.stats import FEWEST_PAIRS, judge, judge_disturbed, paired_ratio, ranks_outside, widened
from nhwc.timing import Ratio, Verdict

TIMES = st.lists(st.floats(0.01, 1e5), min_size=1, max_size=30)


def test_the_estimate_is_the_median_of_pairwise_means_of_log_ratios() -> None:
    base, variant = [3.0, 4.0, 5.0], [1.0, 2.0, 1.0]
    logs = [math.log(3.0), math.log(2.0), math.log(5.0)]
    means = sorted((a + b) / 2 for a, b in itertools.combinations_with_replacement(logs, 2))
    assert paired_ratio(base, variant).estimate == pytest.approx(math.exp((means[2] + means[3]) / 2))


@pytest.mark.parametrize("pairs", [6, 8, 12, 25, 40])
def test_the_ranks_are_those_of_the_exact_signed_rank_distribution(pairs: int) -> None:
    outside = ranks_outside(pairs, 0.95)
    assert outside is not None
    chance = [
        scipy_stats.wilcoxon(signed(pairs, rank_sum), alternative="less", method="exact").pvalue
        for rank_sum in (outside, outside + 1)
    ]
    assert chance[0] <= 0.025 < chance[1]


def signed(pairs: int, rank_sum: int) -> list[float]:
    """Differences of ranks 1 to ``pairs`` of which the positive ones add up to ``rank_sum``."""
    left, signs = rank_sum, []
    for rank in range(pairs, 0, -1):
        positive = rank <= left
        left -= rank if positive else 0
        signs.append(float(rank if positive else -rank))
    assert left == 0
    return signs


def test_the_normal_approximation_takes_over_without_a_jump() -> None:
    exact, near = ranks_outside(40, 0.95), ranks_outside(41, 0.95)
    assert exact is not None
    assert near is not None
    assert 10 <= near - exact <= 20


def test_too_few_pairs_have_no_interval() -> None:
    assert paired_ratio([2.0] * (FEWEST_PAIRS - 1), [1.0] * (FEWEST_PAIRS - 1)) == Ratio(2.0, 0.0, math.inf, 5)
    assert paired_ratio([2.0] * FEWEST_PAIRS, [1.0] * FEWEST_PAIRS).low == pytest.approx(2.0)


@given(TIMES, st.floats(0.1, 10.0))
def test_scaling_a_variant_scales_its_ratio(times: list[float], factor: float) -> None:
    ratio = paired_ratio([factor * ms for ms in times], times)
    assert ratio.estimate == pytest.approx(factor)


@given(st.lists(st.tuples(st.floats(0.01, 1e5), st.floats(0.01, 1e5)), min_size=6, max_size=30))
def test_exchanging_the_two_turns_the_ratio_round(pairs: list[tuple[float, float]]) -> None:
    base, variant = (list(times) for times in zip(*pairs, strict=True))
    there, back = paired_ratio(base, variant), paired_ratio(variant, base)
    assert there.low <= there.estimate <= there.high
    assert (back.low, back.estimate, back.high) == pytest.approx((1 / there.high, 1 / there.estimate, 1 / there.low))


@given(TIMES, st.data())
def test_the_order_of_rounds_does_not_matter(times: list[float], data: st.DataObject) -> None:
    places = data.draw(st.permutations(range(len(times))))
    variant = [1.0 + place for place in range(len(times))]
    shuffled = paired_ratio([times[place] for place in places], [variant[place] for place in places])
    assert shuffled == paired_ratio(times, variant)


@pytest.mark.parametrize(
    ("base", "variant"), [([1.0], [1.0, 2.0]), ([], []), ([1.0, 0.0], [1.0, 1.0]), ([-1.0], [1.0])]
)
def test_samples_that_cannot_be_paired_are_refused(base: list[float], variant: list[float]) -> None:
    with pytest.raises(ValueError, match=r"equal lengths|above 0"):
        paired_ratio(base, variant)


def test_a_margin_widens_the_interval_on_either_side() -> None:
    ratio = widened(Ratio(1.2, 1.1, 1.3, 20), 0.02)
    assert (ratio.estimate, ratio.pairs) == (1.2, 20)
    assert (ratio.low, ratio.high) == pytest.approx((1.1 / 1.02, 1.3 * 1.02))
    assert ratio.half_width == pytest.approx((1 + Ratio(1.2, 1.1, 1.3, 20).half_width) * 1.02 - 1)
    assert widened(Ratio(1.2, 0.0, math.inf, 3), 0.02) == Ratio(1.2, 0.0, math.inf, 3)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (1.001, 1.3, Verdict.FASTER),
        (1.0, 1.3, Verdict.CANNOT_TELL),
        (0.7, 0.999, Verdict.SLOWER),
        (0.7, 1.0, Verdict.CANNOT_TELL),
        (0.9, 1.2, Verdict.CANNOT_TELL),
        (0.0, math.inf, Verdict.CANNOT_TELL),
        (math.nan, math.nan, Verdict.CANNOT_TELL),
    ],
)
def test_a_verdict_needs_the_whole_interval_on_one_side(low: float, high: float, verdict: Verdict) -> None:
    assert judge(Ratio(1.1, low, high, 20)) is verdict


@pytest.mark.parametrize(
    ("ratios", "wanted"),
    [
        ([1.2] * 10, Verdict.FASTER),
        ([1.2] * 9 + [0.5], Verdict.FASTER),
        ([1.2] * 8 + [0.5, 0.5], Verdict.UNSTABLE),
        ([1.2] * 5, Verdict.UNSTABLE),
        ([1.05] * 10, Verdict.UNSTABLE),
        ([0.8] * 9 + [2.0], Verdict.SLOWER),
        ([0.8] * 8 + [2.0, 2.0], Verdict.UNSTABLE),
        ([0.92] * 10, Verdict.UNSTABLE),
    ],
)
def test_a_disturbed_measurement_proves_what_nine_pairs_in_ten_show(ratios: list[float], wanted: Verdict) -> None:
    assert judge_disturbed(ratios, [1.0] * len(ratios), 0.1) is wanted
