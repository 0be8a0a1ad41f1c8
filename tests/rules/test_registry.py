"""The registry refuses what it cannot keep apart."""

import pytest

from nhwc.errors import RegistryError
from nhwc.model import Severity
from nhwc.rules import RULES, rule, rule_for


def nothing(flow: object) -> object:
    """Finds nothing."""
    return iter(())


@pytest.mark.parametrize("code", ["NH1", "NH1234", "nh999", "XX999", "NH99a", "", "NH-99"])
def test_malformed_code_is_refused(code: str) -> None:
    with pytest.raises(RegistryError, match="malformed"):
        rule(code, kind="copy", severity=Severity.NOTE)(nothing)
    assert code not in RULES


def test_taken_code_is_refused_and_its_rule_stays() -> None:
    before = RULES["NH101"]
    with pytest.raises(RegistryError, match="NH101 is taken by 'An explicit copy"):
        rule("NH101", kind="copy", severity=Severity.NOTE)(nothing)
    assert RULES["NH101"] is before


def test_unknown_kind_is_refused() -> None:
    with pytest.raises(RegistryError, match="copy, loss, slow, risk, numerics"):
        rule("NH999", kind="speed", severity=Severity.NOTE)(nothing)
    assert "NH999" not in RULES


def test_rule_without_a_title_is_refused() -> None:
    with pytest.raises(RegistryError, match="docstring"):
        rule("NH999", kind="risk", severity=Severity.NOTE)(lambda flow: iter(()))
    assert "NH999" not in RULES


def test_registering_takes_the_title_from_the_docstring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nhwc.rules.registry.RULES", known := dict(RULES))
    rule("NH999", kind="risk", severity=Severity.NOTE, needs_time=True)(nothing)
    made = known["NH999"]
    assert (made.code, made.title, made.kind, made.needs_time) == ("NH999", "Finds nothing", "risk", True)


def test_unknown_code_names_the_known_ones() -> None:
    assert rule_for("NH302") is RULES["NH302"]
    with pytest.raises(RegistryError, match="no rule 'NH000'; known rules: NH101, NH102"):
        rule_for("NH000")
