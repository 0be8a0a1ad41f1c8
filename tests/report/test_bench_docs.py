"""docs/bench.md describes every field that a measurement's file holds."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from nhwc.timing import Benchmark, Conditions, Load, Ratio, VariantTiming, Verdict

PAGE = (Path(__file__).parents[2] / "docs" / "bench.md").read_text(encoding="utf-8")
NAMED = set(re.findall(r"`(\w+(?: \w+)*)`", PAGE))


@pytest.mark.parametrize("cls", [Benchmark, VariantTiming, Conditions, Ratio, Load])
def test_every_field_is_described(cls: type) -> None:
    assert {field.name for field in dataclasses.fields(cls)} <= NAMED


def test_every_verdict_is_described() -> None:
    assert {verdict.value for verdict in Verdict} <= NAMED
