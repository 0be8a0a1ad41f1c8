"""docs/reports.md describes every field that is written, and its example of a new format runs."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from report import sample

from nhwc import model
from nhwc.report import registry

PAGE = (Path(__file__).parents[2] / "docs" / "reports.md").read_text(encoding="utf-8")
WRITTEN = [
    *(model.TensorMeta, model.Source, model.InnerCopy, model.Reorder, model.Call, model.ParameterMeta),
    *(model.OptimizerStateMeta, model.RankLayout, model.StepError, model.Measurement, model.Environment),
    *(model.Trace, model.Finding),
]


@pytest.mark.parametrize("cls", WRITTEN)
def test_every_field_is_described(cls: type) -> None:
    described = set(re.findall(r"`(\w+)`", PAGE))
    assert {field.name for field in dataclasses.fields(cls)} <= described


def test_the_example_of_a_format_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_FORMATS", {})
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(example, {})
    assert registry.renderer("csv")(sample.training()).splitlines()[0] == "L102,1304576"
