"""Culprits: one line of code is one culprit, errors come first, cost ranks, consequences fold to the start."""

from __future__ import annotations

from dataclasses import replace

import pytest
from report import sample

from nhwc.model import Report, Severity
from nhwc.report.culprits import consequences_text, cost_of, culprits, notes


def test_sixteen_blocks_on_one_line_are_one_culprit() -> None:
    (culprit,) = culprits(sample.shufflenet())
    assert len(culprit.findings) == 16
    assert culprit.title == "clone in channel_shuffle"
    assert culprit.modules == "16 modules, stage2.0 … stage4.3"
    assert consequences_text(culprit) == "and 3 calls after it: add"


def test_places_are_told_in_the_order_in_which_they_ran() -> None:
    report = sample.shufflenet()
    (culprit,) = culprits(Report(report.trace, list(reversed(report.findings))))
    assert culprit.modules == "16 modules, stage2.0 … stage4.3"


def test_errors_come_first_then_cost_with_what_follows() -> None:
    ranked = culprits(sample.fused_optimizer())
    assert [culprit.operator for culprit in ranked] == ["_fused_adam_", "silu_backward", "instance_norm"]
    assert [culprit.rank for culprit in ranked] == [1, 2, 3]


def test_without_times_bytes_rank() -> None:
    report = sample.training()
    timeless = [replace(each, ms=None, bytes=100 * number) for number, each in enumerate(report.findings)]
    ranked = culprits(Report(report.trace, [replace(each, cause=None) for each in timeless]))
    assert [culprit.first.id for culprit in ranked] == ["F3", "F2", "F1"]


def test_notes_are_no_culprits_and_cost_nothing() -> None:
    report = sample.training()
    assert [note.first.code for note in notes(report)] == ["L401"]
    priced = [replace(each, bytes=10**9) if each.severity is Severity.NOTE else each for each in report.findings]
    assert cost_of(priced) == cost_of(report.findings)


def test_a_chain_of_causes_folds_under_its_start() -> None:
    report = sample.shufflenet()
    a, b, c = (replace(each, code=f"X{number}") for number, each in enumerate(report.findings[:3]))
    chain = [a, replace(b, cause=a.id), replace(c, cause=b.id)]
    (culprit,) = culprits(Report(report.trace, chain))
    assert [each.id for each in culprit.consequences] == [b.id, c.id]


@pytest.mark.parametrize("cause", ["F404", "F1", "F2"])
def test_a_cause_that_is_unknown_or_a_circle_loses_no_finding(cause: str) -> None:
    report = sample.shufflenet()
    first, second = report.findings[0], replace(report.findings[1], code="L999", cause="F1")
    ranked = culprits(Report(report.trace, [replace(first, cause=cause), second]))
    shown = {each.id for culprit in ranked for each in culprit.findings + culprit.consequences}
    assert shown == {"F1", "F2"}


def test_spreads_add_up_and_missing_times_stay_missing() -> None:
    first, second = sample.shufflenet().findings[:2]
    cost = cost_of([first, second, replace(second, ms=None, ms_spread=None)])
    assert cost.ms == pytest.approx(1.4)
    assert cost.spread_ms == pytest.approx(0.035 * 2**0.5)
    assert cost_of([replace(first, ms=None)]).ms is None


def test_milliseconds_rank_before_bytes() -> None:
    report = sample.training()
    quick, slow = (replace(report.findings[number], cause=None) for number in (0, 1))
    both = [replace(quick, ms=0.1, bytes=10**9), replace(slow, ms=0.2, bytes=1)]
    assert [culprit.first.id for culprit in culprits(Report(report.trace, both))] == ["F2", "F1"]
