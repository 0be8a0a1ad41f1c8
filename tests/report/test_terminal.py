"""The terminal report: golden text at three widths, ASCII where the console knows no more, no markup from users."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace

import pytest
from report import sample
from rich.console import Console

from nhwc.report.to_html import render_html
from nhwc.report.to_terminal import print_report, render_text


@pytest.mark.parametrize("name", sample.SAMPLES)
@pytest.mark.parametrize("width", [80, 110])
def test_golden_text(name: str, width: int, golden: Callable[[str, str], None]) -> None:
    golden(render_text(sample.SAMPLES[name](), width=width), f"text/{name}_{width}.txt")


@pytest.mark.parametrize("name", sample.SAMPLES)
@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_no_line_is_wider_than_the_console_or_a_comfortable_page(name: str, width: int) -> None:
    lines = render_text(sample.SAMPLES[name](), width=width).splitlines()
    assert max(len(line) for line in lines) <= min(width, 120)


@pytest.mark.parametrize("name", sample.SAMPLES)
def test_a_console_that_knows_only_ascii_gets_only_ascii(name: str) -> None:
    raw = io.BytesIO()
    console = Console(file=io.TextIOWrapper(raw, encoding="ascii", write_through=True), width=80)
    print_report(sample.SAMPLES[name](), console)
    text = raw.getvalue().decode("ascii")
    assert "nhwc 0.1.0, torch 2.14.1" in text


def test_ascii_keeps_the_plus_minus_and_the_arrow() -> None:
    raw = io.BytesIO()
    console = Console(file=io.TextIOWrapper(raw, encoding="ascii", write_through=True), width=100)
    print_report(sample.shufflenet(), console)
    text = raw.getvalue().decode("ascii")
    assert "9.60 +- 0.12" in text
    assert "-> Call torch.channel_shuffle(x, groups)" in text


def test_markup_and_control_characters_of_users_are_shown_not_obeyed() -> None:
    text = render_text(sample.hostile(), width=4000, color=True)
    assert "[bold red]" in text
    assert "\\x1b[31m" in text
    assert "\x1b[31m" not in text
    for character in "\u202e\ud800":
        assert character not in text


def test_color_only_where_it_is_asked_for() -> None:
    assert "\x1b[" in render_text(sample.shufflenet(), color=True)
    assert "\x1b" not in render_text(sample.shufflenet())


def test_a_notebook_gets_the_same_text(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = render_text(sample.shufflenet())
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert render_text(sample.shufflenet()) == plain


def test_kernels_that_were_on_are_named_and_where_they_step_aside() -> None:
    report = sample.shufflenet()
    assert "Kernels" not in render_text(report, width=120)
    on = replace(report, trace=replace(report.trace, kernels=("cat", "pad")))
    assert "Kernels   nhwc's own were on: cat, pad\n" in render_text(on, width=120)
    static = replace(on, trace=replace(on.trace, mode="static"))
    assert "on: cat, pad; they step aside for fake tensors" in render_text(static, width=120)
    assert "nhwc&#39;s own were on: cat, pad" in render_html(on)


def test_environment_conversion_limits_and_doubts_are_told() -> None:
    text = render_text(sample.static_shufflenet(), width=120)
    for words in ("Not seen", "A static trace runs on fake tensors", "Formats   model and inputs to channels_last"):
        assert words in text
    assert "features.12 is one module used in two places" in render_text(sample.training(), width=120)
