"""The rule by which a result passes, on numbers made by hand."""

from __future__ import annotations

import math

import pytest
import torch

from nhwc.verification.distance import Distance, distance
from nhwc.verification.judge import Baseline
from nhwc.verification.run import Results

KEY = ("output", "output")
EPS = torch.finfo(torch.float32).eps


def results(value: torch.Tensor, key: tuple[str, str] = KEY) -> Results:
    return Results({key: value})


def off(share: float) -> torch.Tensor:
    """A hundred ones in float32, each off by a share."""
    return torch.full((100,), 1.0 + share)


ONES = torch.ones(100, dtype=torch.float64)


def test_distance_is_relative_to_the_size_of_the_reference() -> None:
    reference = torch.tensor([3.0, 4.0])
    found = distance(torch.tensor([3.0, 4.5]), reference)
    assert found.peak == pytest.approx(0.5 / 4.0)
    assert found.rms == pytest.approx(0.5 / 5.0)


def test_distance_of_whole_numbers_is_the_share_that_differs() -> None:
    assert distance(torch.tensor([1, 2, 3, 4]), torch.tensor([1, 2, 3, 5])) == Distance(0.25, 0.25)


def test_distance_from_zeros_is_the_difference_itself() -> None:
    assert distance(torch.tensor([0.5]), torch.tensor([0.0])).peak == 0.5


def test_only_compared_elements_count() -> None:
    value, reference = torch.tensor([1.0, math.nan]), torch.tensor([1.0, 2.0])
    assert distance(value, reference, torch.tensor([True, False])) == Distance(0.0, 0.0)


@pytest.mark.parametrize(("times", "passed"), [(7.0, True), (9.0, False)])
def test_a_result_passes_within_the_factor_of_the_contiguous_error(times: float, passed: bool) -> None:
    baseline = Baseline(results(off(1e-4)), results(ONES), 8.0)
    (judged,) = baseline.judge(results(off(1e-4 * times)))
    assert judged.passed is passed
    assert bool(judged.reason) is not passed


@pytest.mark.parametrize(("roundings", "passed"), [(30, True), (40, False)])
def test_a_lucky_contiguous_error_of_zero_is_covered_by_a_floor(roundings: int, passed: bool) -> None:
    baseline = Baseline(results(off(0.0)), results(ONES), 8.0)
    assert baseline.judge(results(off(roundings * EPS)))[0].passed is passed


@pytest.mark.parametrize(("roundings", "passed"), [(7, True), (10, False)])
def test_the_floor_of_a_coarse_dtype_is_lower(roundings: int, passed: bool) -> None:
    epsilon = torch.finfo(torch.bfloat16).eps
    baseline = Baseline(results(off(0.0)), results(off(0.0)), 8.0, rounding=epsilon)
    assert baseline.judge(results(off(roundings * epsilon)))[0].passed is passed


@pytest.mark.parametrize(("roundings", "passed"), [(1.5, True), (3, False)])
def test_one_operator_may_be_a_few_roundings_of_a_coarse_dtype_off(roundings: float, passed: bool) -> None:
    epsilon = torch.finfo(torch.bfloat16).eps
    baseline = Baseline(results(off(0.0)), results(off(0.0)), 8.0, rounding=epsilon, single=True)
    assert baseline.judge(results(off(roundings * epsilon)))[0].passed is passed


def test_contiguous_runs_with_nudged_values_widen_the_limit() -> None:
    baseline = Baseline(results(off(1e-6)), results(ONES), 8.0)
    assert not baseline.judge(results(off(1e-3)))[0].passed
    baseline.widen(results(off(5e-4)))
    assert baseline.judge(results(off(1e-3)))[0].passed


def test_what_is_all_cancellation_may_be_further_off() -> None:
    noise = torch.full((100,), 1e-9)
    baseline = Baseline(results(noise), results(torch.full((100,), 1e-17, dtype=torch.float64)), 8.0)
    assert baseline.judge(results(noise * 500))[0].passed
    assert not baseline.judge(results(noise * 2000))[0].passed


def test_a_running_mean_counts_as_the_spread_beside_it() -> None:
    def buffers(mean: float, dtype: torch.dtype) -> Results:
        return Results(
            {
                ("buffer", "bn.running_mean"): torch.full((4,), mean, dtype=dtype),
                ("buffer", "bn.running_var"): torch.ones(4, dtype=dtype),
            }
        )

    baseline = Baseline(buffers(2e-9, torch.float32), buffers(1e-9, torch.float64), 8.0)
    assert all(each.passed for each in baseline.judge(buffers(1e-7, torch.float32)))
    assert not all(each.passed for each in baseline.judge(buffers(1e-4, torch.float32)))


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (torch.ones(99), "its shape is"),
        (torch.ones(100, dtype=torch.float64), "its dtype is float64; in contiguous format float32"),
        (torch.full((100,), math.nan), "100 of 100 elements are not finite"),
    ],
)
def test_other_shapes_dtypes_and_nan_fail_whatever_the_factor(value: torch.Tensor, sentence: str) -> None:
    (judged,) = Baseline(results(off(0.0)), results(ONES), 1e9).judge(results(value))
    assert not judged.passed
    assert sentence in judged.reason


def test_a_missing_result_and_one_too_many_fail() -> None:
    judged = Baseline(results(off(0.0)), results(ONES), 8.0).judge(results(off(0.0), ("output", "other")))
    assert [each.passed for each in judged] == [False, False]


def test_a_reference_that_nudged_runs_do_not_explain_is_not_believed() -> None:
    baseline = Baseline(results(off(0.5)), results(ONES), 8.0)
    assert baseline.judge(results(off(2.0)))[0].passed
    assert baseline.doubtful() == {KEY}
    baseline.distrust({KEY}, [results(off(0.5 + 1e-6))])
    assert baseline.distrusted == {KEY}
    assert not baseline.judge(results(off(2.0)))[0].passed
    assert baseline.judge(results(off(0.5 + 1e-6)))[0].passed


def test_a_great_error_that_nudged_runs_share_is_believed() -> None:
    baseline = Baseline(results(off(0.5)), results(ONES), 8.0)
    baseline.distrust(baseline.doubtful(), [results(off(-0.5))])
    assert baseline.distrusted == set()
