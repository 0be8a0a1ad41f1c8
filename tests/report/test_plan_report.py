"""A plan's pages: golden text, JSON that loads again, damage that is told, and what differs between two plans."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from report import plan_sample as sample
from rich.console import Console

from nhwc.errors import SchemaError
from nhwc.plan import Predicted
from nhwc.report.plan import differences
from nhwc.report.plan.to_json import render_json
from nhwc.report.plan.to_terminal import print_plan, render_text
from nhwc.schema import dump_plan, load_plan


@pytest.mark.parametrize("name", sample.SAMPLES)
@pytest.mark.parametrize("width", [80, 120])
def test_golden_text(name: str, width: int, golden: Callable[[str, str], None]) -> None:
    golden(render_text(sample.SAMPLES[name](), width=width), f"plan/{name}_{width}.txt")


@pytest.mark.parametrize("name", sample.SAMPLES)
@pytest.mark.parametrize("width", [60, 200])
def test_no_line_is_wider_than_the_console_or_a_comfortable_page(name: str, width: int) -> None:
    lines = render_text(sample.SAMPLES[name](), width=width).splitlines()
    assert max(len(line) for line in lines) <= min(width, 120)


def test_a_console_that_knows_only_ascii_gets_only_ascii() -> None:
    raw = io.BytesIO()
    console = Console(file=io.TextIOWrapper(raw, encoding="ascii", write_through=True), width=100)
    print_plan(sample.plan(), console)
    assert "torch 2.14.1" in raw.getvalue().decode("ascii")


def test_users_strings_are_shown_not_obeyed() -> None:
    text = render_text(sample.hostile(), width=4000)
    assert "\u202e" not in text
    assert "\x1b" not in text
    assert "red]\\u202e" in text


@pytest.mark.parametrize("name", sample.SAMPLES)
def test_json_loads_again_as_it_was(name: str) -> None:
    made = sample.SAMPLES[name]()
    assert load_plan(render_json(made)) == made == load_plan(dump_plan(made))


def test_json_has_a_line_for_each_module_to_edit() -> None:
    lines = render_json(sample.plan()).splitlines()
    assert len([line for line in lines if '"module_type"' in line]) == 2
    assert len([line for line in lines if '"where"' in line]) == 3
    text = render_json(sample.plan())
    edited = load_plan(text.replace('"format": "channels_last", "calls"', '"format": "contiguous", "calls"'))
    assert edited.format == "contiguous"


def test_a_format_in_which_the_model_does_not_run_is_kept() -> None:
    made = replace(sample.plan(), predicted=Predicted(1.0, float("inf"), 1.0))
    assert load_plan(render_json(made)) == made


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("version",), 2, "update nhwc"),
        (("format",), "nhwc-bench", "not 'nhwc-plan'"),
        (("placements", 0, "format"), "nhwc", r"placements\[0\].format: expected one of contiguous, channels_last"),
        (("placements", 1, "module"), "features.conv", r"placements\[1\].module: 'features.conv' is placed twice"),
        (("moves", 0, "where"), "inside", r"moves\[0\].where: expected one of before, after"),
        (("moves", 1, "format"), "", r"moves\[1\].format"),
        (("predicted",), None, "expected an object"),
        (("inputs", 0, "shape"), [1.5], "expected int"),
    ],
)
def test_damage_is_told(place: tuple[Any, ...], value: object, message: str) -> None:
    document = json.loads(render_json(sample.plan()))
    inner = document
    for part in place[:-1]:
        inner = inner[part]
    inner[place[-1]] = value
    with pytest.raises(SchemaError, match=message):
        load_plan(document)


def test_equal_plans_do_not_differ_and_measured_times_alone_are_no_difference() -> None:
    made = sample.plan()
    assert differences(made, made) == ()
    assert differences(made, replace(made, predicted=Predicted(13.0, 9.75, 9.0))) == ()


def test_differences_are_told_in_order() -> None:
    old = sample.plan()
    first, second = old.placements
    new = replace(
        old,
        tree="other",
        placements=(replace(first, format="contiguous"), replace(second, module="head")),
        moves=(old.moves[0], replace(old.moves[1], module="head")),
        kernels=(),
        predicted=Predicted(13.0, 9.75, 9.0),
    )
    reason = "it was made for another module tree (paths, types or parameter shapes differ)"
    assert differences(old, new) == (
        f"the plans are for different things: of the first, {reason}",
        "features.conv: channels last before, contiguous now",
        "the model itself: no longer planned",
        "head: contiguous, not planned before",
        "converts no longer to contiguous after features.conv",
        "converts no longer to contiguous before features.other",
        "converts to contiguous after head",
        "kernels: max_pool2d before, none now",
        "predicted: 9.5 ms before, 9 ms now",
    )
