"""An engine's report: golden pages, sums that are sums, JSON that loads again, and damage that is told."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from report import engine_sample as sample
from rich.console import Console

from nhwc.engine_report import Accuracy, Bound
from nhwc.errors import SchemaError
from nhwc.report.engine.rows import rows
from nhwc.report.engine.summary import accuracy_text, fallback_lines, headline
from nhwc.report.engine.to_json import render_json
from nhwc.report.engine.to_terminal import print_engine_report, render_text
from nhwc.schema import dump_engine_report, load_engine_report


@pytest.mark.parametrize("name", sample.SAMPLES)
@pytest.mark.parametrize("width", [80, 120])
def test_golden_text(name: str, width: int, golden: Callable[[str, str], None]) -> None:
    golden(render_text(sample.SAMPLES[name](), width=width), f"engine/{name}_{width}.txt")


@pytest.mark.parametrize("name", sample.SAMPLES)
@pytest.mark.parametrize("width", [60, 80, 200])
def test_no_line_is_wider_than_the_console_or_a_comfortable_page(name: str, width: int) -> None:
    lines = render_text(sample.SAMPLES[name](), width=width).splitlines()
    assert max(len(line) for line in lines) <= min(width, 120)


@pytest.mark.parametrize("name", sample.SAMPLES)
def test_a_console_that_knows_only_ascii_gets_only_ascii(name: str) -> None:
    raw = io.BytesIO()
    console = Console(file=io.TextIOWrapper(raw, encoding="ascii", write_through=True), width=100)
    print_engine_report(sample.SAMPLES[name](), console)
    assert "torch 2.14.1" in raw.getvalue().decode("ascii")


def test_users_strings_are_shown_not_obeyed() -> None:
    text = render_text(sample.hostile(), width=4000, color=True)
    assert "\u202e" not in text
    assert "[bold red]" in text


def test_the_footer_is_the_sum_of_what_the_rows_show() -> None:
    found, totals = rows(sample.whole())
    assert float(totals.ms) == pytest.approx(sum(float(row.ms) for row in found))
    assert float(totals.gflop) == pytest.approx(sum(float(row.gflop) for row in found if row.gflop != "–"))


def test_arithmetic_or_memory_bounds_a_step_and_the_share_is_of_that() -> None:
    report = sample.whole()
    first, pool, copied = report.steps[0], report.steps[2], report.steps[3]
    assert first.bound(report.limits) is Bound.ARITHMETIC
    assert first.share(report.limits) == pytest.approx(231_211_008 / 0.00231 / 90e9)
    assert pool.bound(report.limits) is Bound.MEMORY
    assert pool.share(report.limits) == pytest.approx(1_753_344 / 0.00021 / 15e9)
    assert copied.bound(report.limits) is Bound.MEMORY


def test_what_fell_back_is_told_by_operator_the_dearest_first() -> None:
    report = sample.whole()
    assert headline(report) == "11.3 ms a call: 6 steps, 3 of them run by torch."
    assert fallback_lines(report) == [
        "lp_pool2d: 2 calls, 1.2 ms, 16 % of the steps' time",
        "nonzero: 1 call, 0.1 ms, 1.3 % of the steps' time",
    ]
    assert report.fallback_ms == pytest.approx(1.3)


def test_the_bound_is_four_times_eagers_error_or_of_a_few_roundings() -> None:
    assert Accuracy(3.9e-6, 1e-6).holds
    assert not Accuracy(4.1e-6, 1e-6).holds
    assert Accuracy(9e-7, 0.0).holds
    assert not Accuracy(float("nan"), 1e-6).holds
    assert "outside the bound" in accuracy_text(sample.outside())
    assert "less exact algorithms were given up in layer1.0.conv1" in accuracy_text(sample.outside())
    assert accuracy_text(sample.untold()) == "not compared with float64: the model does not run in float64: no"
    assert accuracy_text(replace(sample.whole(), accuracy=None)) == ""


@pytest.mark.parametrize("name", [name for name in sample.SAMPLES if name != "untold"])
def test_json_loads_again_equal(name: str) -> None:
    report = sample.SAMPLES[name]()
    text = render_json(report)
    assert load_engine_report(text) == report
    document = json.loads(text)
    assert list(document)[:3] == ["format", "version", "headline"]
    assert document["steps_ms"] == report.steps_ms


def test_errors_that_are_no_numbers_survive_json() -> None:
    loaded = load_engine_report(render_json(sample.untold()))
    assert loaded.accuracy is not None
    assert loaded.accuracy.error != loaded.accuracy.error
    assert loaded.accuracy.reason == "the model does not run in float64: no"


def damaged(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(dump_engine_report(sample.whole())))
    change(document)
    return document


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.update(version=2), "version 2 and this nhwc reads up to 1"),
        (lambda d: d.update(format="nhwc-bench"), "has the format 'nhwc-bench'"),
        (lambda d: d["steps"][1].update(ms="fast"), r"steps\[1\].ms: expected float, got str"),
        (lambda d: d["steps"][0].update(colour=1), r"steps\[0\].colour: is a field that this version does not have"),
        (lambda d: d.pop("limits"), "limits: is missing"),
        (lambda d: d["limits"].update(flop_per_s=0.0), "limits: expected measured limits above 0"),
        (lambda d: d["limits"].update(copies=[]), "limits: expected measured limits above 0"),
        (lambda d: d["limits"]["copies"][0].update(bytes_per_s=0.0), "limits.copies: expected bandwidths above 0"),
        (lambda d: d.update(steps=3), "steps: expected a list"),
    ],
)
def test_damage_is_refused_with_its_place(change: Callable[[dict[str, Any]], object], words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        load_engine_report(damaged(change))
