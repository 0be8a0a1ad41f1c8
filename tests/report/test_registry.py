"""Formats are registered once, by lower-case words, and an unknown one is answered with the known ones."""

from __future__ import annotations

import json

import pytest
from report import sample

from nhwc.errors import RegistryError
from nhwc.report import formats, render
from nhwc.report.registry import report_format
from nhwc.report.to_terminal import render_text
from nhwc.schema import load_report


def test_the_formats_that_there_are() -> None:
    assert formats() == ("html", "json", "text")


@pytest.mark.parametrize("name", ["pdf", "", None, ["text"]])
def test_an_unknown_format_is_answered_with_the_known_ones(name: object) -> None:
    with pytest.raises(RegistryError, match="the known ones are html, json, text"):
        render(sample.raising(), name)  # type: ignore[arg-type]


def test_a_format_is_registered_once() -> None:
    with pytest.raises(RegistryError, match="'text' is registered twice"):
        report_format("text")(render_text)


@pytest.mark.parametrize("name", ["Text", "two words", "", 3])
def test_a_format_is_named_by_a_lower_case_word(name: object) -> None:
    with pytest.raises(RegistryError, match="named by a lower-case word"):
        report_format(name)  # type: ignore[arg-type]


def test_options_reach_the_format() -> None:
    assert render(sample.training(), "text", width=60) == render_text(sample.training(), width=60)
    assert max(len(line) for line in render(sample.training(), "text", width=60).splitlines()) <= 60


def test_json_opens_with_its_headline_and_loads_again() -> None:
    report = sample.shufflenet()
    document = json.loads(render(report, "json"))
    assert list(document)[:5] == ["format", "version", "headline", "verdict", "totals"]
    assert document["verdict"] == "lost"
    assert load_report(render(report, "json", indent=2)) == report
