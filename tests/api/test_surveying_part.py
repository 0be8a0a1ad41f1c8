"""The file in which a survey goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from made_up_operators import CONDITIONS, row

from nhwc.api.surveying_part import Part
from nhwc.errors import TargetError

QUESTION = {"dtypes": ["float32"], "device": "cpu", "speed": "none"}
KEY = ("relu", "operator", "eager")
ROWS = (row("relu"), row("relu", dims=3))


def test_what_was_found_is_there_again(tmp_path: Path) -> None:
    path = tmp_path / "ops.part"
    with Part(path, QUESTION, CONDITIONS) as part:
        assert KEY not in part
        part.add(KEY, ROWS)
        took_s = json.loads(path.read_text().splitlines()[-1])["seconds"]
    with Part(path, QUESTION, CONDITIONS) as again:
        assert KEY in again
        assert again.rows(KEY) == ROWS
        assert again.rows(("tanh", "operator", "eager")) == ()
        assert again.started == part.started
        assert again.seconds >= took_s > 0.0


def test_a_line_that_was_cut_off_is_left_out_and_written_again(tmp_path: Path) -> None:
    path = tmp_path / "ops.part"
    with Part(path, QUESTION, CONDITIONS) as part:
        part.add(KEY, ROWS)
        part.add(("tanh", "operator", "eager"), ROWS)
    path.write_text(path.read_text()[:-20])
    with Part(path, QUESTION, CONDITIONS) as again:
        assert KEY in again
        assert ("tanh", "operator", "eager") not in again
        again.add(("tanh", "operator", "eager"), ROWS)
    with Part(path, QUESTION, CONDITIONS) as whole:
        assert whole.rows(("tanh", "operator", "eager")) == ROWS


def test_without_a_file_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Part(None, QUESTION, CONDITIONS) as part:
        part.add(KEY, ROWS)
        assert part.rows(KEY) == ROWS
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["no JSON\n", "[1]\n", '{"format": "nhwc-ops"}\n', '{"format": "nhwc-ops-part"'])
def test_a_file_that_is_none_of_ours_is_refused_and_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.txt"
    path.write_text(text)
    with pytest.raises(TargetError, match="is no part of a survey"):
        Part(path, QUESTION, CONDITIONS)
    assert path.read_text() == text


def test_a_part_of_another_survey_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ops.part"
    with Part(path, QUESTION, CONDITIONS):
        pass
    with pytest.raises(TargetError, match="part of another survey: its question is"):
        Part(path, {**QUESTION, "speed": "own"}, CONDITIONS)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"ops.part cannot be written: No such file"):
        Part(tmp_path / "nowhere" / "ops.part", QUESTION, CONDITIONS)
