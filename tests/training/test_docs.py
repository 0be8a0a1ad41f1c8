"""The page about training: its examples run, its options are those of the command, with their defaults."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nhwc import TrainSettings
from nhwc.cli.main import app
from nhwc.cli.train import option_names

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "train.md").read_text(encoding="utf-8")


@pytest.mark.usefixtures("few_threads")
def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__example__"}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        exec(compile(block, "train.md", "exec"), names)
    assert names["report"].updates == 8  # type: ignore[attr-defined]


def test_the_page_names_every_option() -> None:
    told = CliRunner().invoke(app, ["train", "--help"], env={"COLUMNS": "200"}).stdout
    options = set(re.findall(r"^\W*(--[a-z-]+)", told, re.MULTILINE)) - {"--help", "--debug"}
    assert len(options) > 35
    assert options - set(re.findall(r"--[a-z-]+", PAGE)) == set()


def test_the_page_says_what_options_are_called_in_python() -> None:
    (table,) = re.findall(r"^\| Option \| In `TrainSettings` \|\n(.*?)\n\n", PAGE, re.MULTILINE | re.DOTALL)
    for setting, option in option_names().items():
        if setting in {each.name for each in fields(TrainSettings)} and setting != option.lstrip("-").replace("-", "_"):
            rows = [row for row in table.splitlines() if re.match(rf"\| `{option}\b", row)]
            assert any(f"`{setting}" in row for row in rows), setting
    assert "sinks=[nhwc.training.TextLog(print)]" in PAGE
