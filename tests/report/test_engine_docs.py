"""docs/engine.md describes every field that an engine's report holds, and its example runs."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from nhwc.engine_report import Accuracy, Alternative, CopySpeed, EngineReport, Limits, StepTiming
from nhwc.schema.engine_report import _DERIVED, _DERIVED_OF_STEP

PAGE = (Path(__file__).parents[2] / "docs" / "engine.md").read_text(encoding="utf-8")
NAMED = set(re.findall(r"`(\w+)`", PAGE))


@pytest.mark.parametrize("cls", [EngineReport, StepTiming, Alternative, Limits, CopySpeed, Accuracy])
def test_every_field_is_described(cls: type) -> None:
    assert {field.name for field in dataclasses.fields(cls)} <= NAMED


def test_what_is_derived_is_said() -> None:
    assert NAMED | {"headline"} >= _DERIVED | _DERIVED_OF_STEP


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NHWC_CACHE", "0")
    block = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
    exec(compile(block, "docs/engine.md", "exec"), {"__name__": "__example__"})
    assert (tmp_path / "model.engine").exists()
