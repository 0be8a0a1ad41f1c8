"""Columns add up: what a reader adds by hand is what the footer says, and the footer is what the findings say."""

from __future__ import annotations

import dataclasses
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report import sample

from nhwc.report.culprits import culprits
from nhwc.report.formatting import column
from nhwc.report.totals import columns

COSTLY = [name for name in sample.SAMPLES if name not in ("clean_resnet", "raising")]


@given(st.lists(st.none() | st.floats(0, 1e6), min_size=1, max_size=60), st.integers(0, 3))
def test_rounded_rows_add_up_to_the_rounded_total(values: list[float | None], places: int) -> None:
    texts, total = column(values, places)
    known = [value for value in values if value is not None]
    if not known:
        assert total == "–"
        return
    assert sum(Decimal(text) for text in texts if text != "–") == Decimal(total)
    assert abs(float(total) - sum(known)) <= 0.5 * len(known) * 10**-places + 1e-6
    for text, value in zip(texts, values, strict=True):
        assert value is None or abs(float(text) - value) <= 0.5 * 10**-places + 1e-6
    for text, value in zip(texts, values, strict=True):
        assert (text == "–") == (value is None)
        assert value is None or abs(float(text) - value) <= 10**-places + 1e-6


@pytest.mark.parametrize("name", COSTLY)
@pytest.mark.parametrize("field", ["calls", "bytes", "ms", "share"])
def test_every_column_adds_up_to_its_footer(name: str, field: str) -> None:
    report = sample.SAMPLES[name]()
    texts = columns(report, culprits(report))
    rows = [*texts.own, *(row for row in texts.after if row is not None)]
    numbers = [getattr(row, field).split(" ")[0].replace(",", "") for row in rows]
    total = getattr(texts.total, field).split(" ")[0].replace(",", "")
    assert sum(Decimal(number) for number in numbers if number != "–") == Decimal(total if total != "–" else 0)


@pytest.mark.parametrize("name", COSTLY)
def test_the_footer_is_the_cost_of_the_report(name: str) -> None:
    report = sample.SAMPLES[name]()
    total = columns(report, culprits(report)).total
    if report.lost_ms is None:
        assert total.ms == "–"
    else:
        assert float(total.ms) == pytest.approx(report.lost_ms, rel=0.01)
    size = {"kB": 1e3, "MB": 1e6}[columns(report, culprits(report)).byte_unit]
    assert float(total.bytes) * size == pytest.approx(report.lost_bytes, abs=0.05 * size)


def test_an_empty_table_has_an_empty_footer() -> None:
    assert dataclasses.astuple(columns(sample.clean_resnet(), []).total) == ("0", "0", "–", "–")
