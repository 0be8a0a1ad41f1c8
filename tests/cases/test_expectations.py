"""The form of the cases is read right, and a missed or a false alarm never passes."""

from pathlib import Path

import pytest
from cases.expectations import Case, Expected, check, expected_in, read_case

from nhwc.model import Environment, Finding, Phase, Report, Severity, Source, Trace

PATH = Path("/models/case.py")
TRACE = Trace("case", "eager", False, Environment("2.14.1", "3.11", "cpu", "", 1, "0"), ())
CULPRIT = Finding(
    id="F1",
    code="NH101",
    kind="copy",
    severity=Severity.WARNING,
    operator="reshape",
    module="head",
    source=Source(str(PATH), 7),
    phase=Phase.FORWARD,
    shapes=(),
    strides=(),
    bytes=64,
    message="",
    advice="",
)


def finding(**changes: object) -> Finding:
    return Finding(**{name: changes.get(name, getattr(CULPRIT, name)) for name in CULPRIT.__slots__})


def case(*expected: Expected, clean: tuple[str, ...] = ()) -> Case:
    return Case(PATH, "owner/repository#1", expected, clean=clean)


def test_comments_are_read_as_literals() -> None:
    text = 'x = 1  # expect: NH102 module=a.b bytes=16; NH201 module= cause=NH102\ny = "# expect: NH999"\n'
    assert list(expected_in(text)) == [
        Expected("NH102", 1, module="a.b", bytes=16),
        Expected("NH201", 1, module="", cause="NH102"),
    ]


def test_an_unknown_key_is_refused() -> None:
    with pytest.raises(TypeError, match="byts"):
        list(expected_in("x = 1  # expect: NH102 byts=16\n"))


def test_a_case_without_its_report_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "case.py"
    path.write_text('"""A model."""\n')
    with pytest.raises(ValueError, match="owner/repository#number"):
        read_case(path)


def test_block_is_read_as_a_literal(tmp_path: Path) -> None:
    path = tmp_path / "case.py"
    path.write_text('"""a/b#1: c."""\nEXPECT = {"findings": [{"code": "NH203"}], "train": True, "clean": ["@x"]}\n')
    assert read_case(path) == Case(path, "a/b#1", (Expected("NH203"),), train=True, clean=("@x",))
    path.write_text('"""a/b#1: c."""\nEXPECT = {"train": print()}\n')
    with pytest.raises(ValueError, match="malformed"):
        read_case(path)


def test_what_is_expected_passes() -> None:
    expected = Expected("NH101", 7, "reshape", "head", "forward", "copy", "warning", 64, 1)
    assert not check(case(expected), Report(TRACE, [CULPRIT]))


@pytest.mark.parametrize(
    "change",
    [
        {"line": 8},
        {"operator": "flatten"},
        {"module": ""},
        {"phase": "backward"},
        {"kind": "loss"},
        {"severity": "note"},
        {"bytes": 65},
        {"calls": 2},
        {"cause": "NH102"},
        {"code": "NH102"},
    ],
    ids=str,
)
def test_any_difference_is_a_missed_and_a_false_alarm(change: dict[str, object]) -> None:
    wrong = check(case(Expected(**{"code": "NH101", "line": 7, **change})), Report(TRACE, [CULPRIT]))
    assert [sentence.partition(":")[0] for sentence in wrong] == ["missed alarm", "false alarm"]


def test_line_of_another_file_does_not_count() -> None:
    elsewhere = finding(source=Source("/models/other.py", 7))
    assert len(check(case(Expected("NH101", 7)), Report(TRACE, [elsewhere]))) == 2


def test_one_finding_meets_one_expectation() -> None:
    twice = case(Expected("NH101", 7), Expected("NH101", 7))
    assert check(twice, Report(TRACE, [CULPRIT])) == ["missed alarm: NH101 (line=7, cause='none')"]


def test_consequence_of_what_is_expected_is_no_false_alarm_and_one_of_nothing_is() -> None:
    follows = finding(id="F2", code="NH204", cause="F1")
    assert not check(case(Expected("NH101", 7)), Report(TRACE, [CULPRIT, follows]))
    assert len(check(case(), Report(TRACE, [CULPRIT, follows]))) == 2


def test_note_is_no_false_alarm() -> None:
    assert not check(case(clean=("reshape",)), Report(TRACE, [finding(severity=Severity.NOTE)]))


@pytest.mark.parametrize(("place", "named"), [("reshape", 1), ("@head", 1), ("reshape@head", 1), ("reshape@tail", 0)])
def test_clean_places_name_no_finding_even_a_consequence(place: str, named: int) -> None:
    wrong = check(case(Expected("NH101", 7), clean=(place,)), Report(TRACE, [CULPRIT]))
    assert len(wrong) == named
