"""--fail-on: what it accepts, and when it holds."""

import pytest
from cli.conftest import make_finding, make_report

from nhwc.cli.conditions import parse_condition
from nhwc.errors import TargetError
from nhwc.model import Severity

RULES = ("NH101", "NH102")


@pytest.mark.parametrize(
    ("text", "limit"),
    [("1MB", 10**6), ("1 mb", 10**6), ("1.5KiB", 1536), ("0B", 0), ("2GB", 2 * 10**9), ("5%", 5), ("0.5 %", 0.5)],
)
def test_amounts_are_read_in_their_unit(text: str, limit: float) -> None:
    assert parse_condition(text, RULES).limit == limit


@pytest.mark.parametrize("text", ["", "5", "MB", "-1MB", "1TB", "5%%", "NH", "all", "1e6B"])
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(TargetError, match="is no rule, bytes or percent"):
        parse_condition(text, RULES)


def test_a_misspelt_rule_is_refused_with_the_known_ones() -> None:
    with pytest.raises(TargetError, match="no such rule; the rules are NH101, NH102"):
        parse_condition("NH999", RULES)


def test_a_rule_holds_where_it_was_found_whatever_its_severity() -> None:
    report = make_report(make_finding(code="NH102", severity=Severity.NOTE, calls=3))
    assert parse_condition("nh102", RULES).held_by(report) == "NH102 was found in 3 calls"
    assert parse_condition("NH101", RULES).held_by(report) == ""


def test_any_counts_culprits_not_notes_nor_consequences() -> None:
    note = make_finding(id="F2", severity=Severity.NOTE)
    follows = make_finding(id="F3", cause="F1")
    assert parse_condition("any", RULES).held_by(make_report(note)) == ""
    assert parse_condition("any", RULES).held_by(make_report(make_finding(), note, follows)) == "1 finding"


def test_any_says_how_many_culprits_the_report_makes_of_the_findings() -> None:
    alike = make_finding(id="F2", module="layer2")
    assert parse_condition("any", RULES).held_by(make_report(make_finding(), alike)) == "2 findings of 1 culprit"


def test_bytes_and_percent_hold_only_over_their_limit() -> None:
    report = make_report(make_finding(bytes=1_000_000, ms=5.0), step_ms=100.0)
    assert parse_condition("1MB", RULES).held_by(report) == ""
    assert parse_condition("999KB", RULES).held_by(report) == "1 MB moved, over 999 kB"
    assert parse_condition("5%", RULES).held_by(report) == ""
    assert parse_condition("4.9%", RULES).held_by(report) == "5.0 % of the step lost (5 ms), over 4.9 %"


def test_a_loss_within_the_combined_spread_of_the_findings_holds_for_no_percentage() -> None:
    findings = [make_finding(ms=4.0, ms_spread=3.0), make_finding(id="F2", ms=3.0, ms_spread=4.0)]
    over, noise = make_report(*findings), make_report(findings[0], make_finding(id="F2", ms=1.0, ms_spread=4.0))
    assert parse_condition("1%", RULES).held_by(over) == "7.0 % of the step lost (7.00 ± 5.00 ms), over 1 %"
    assert parse_condition("1%", RULES).held_by(noise) == ""


def test_a_percentage_of_an_unmeasured_step_is_refused_not_passed() -> None:
    with pytest.raises(TargetError, match="measured no times"):
        parse_condition("5%", RULES).held_by(make_report(make_finding(ms=None), step_ms=None))
