"""The measurement on a terminal: golden text, no wider than the console, ASCII where the console knows no more."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from report import bench_sample as sample
from rich.console import Console

from nhwc.errors import RegistryError
from nhwc.report.bench import formats, headline, render, slower_in_channels_last, verdict
from nhwc.report.bench.sections import stopped
from nhwc.report.bench.to_terminal import print_benchmark
from nhwc.timing import Ratio, Verdict


@pytest.mark.parametrize("name", sample.SAMPLES)
@pytest.mark.parametrize("width", [80, 110])
def test_golden_text(name: str, width: int, golden: Callable[[str, str], None]) -> None:
    golden(render(sample.SAMPLES[name](), "text", width=width), f"bench/{name}_{width}.txt")


@pytest.mark.parametrize("name", sample.SAMPLES)
@pytest.mark.parametrize("width", [60, 80, 200])
def test_no_line_is_wider_than_the_console_or_a_comfortable_page(name: str, width: int) -> None:
    lines = render(sample.SAMPLES[name](), "text", width=width).splitlines()
    assert max(len(line) for line in lines) <= min(width, 120)


@pytest.mark.parametrize("name", sample.SAMPLES)
def test_a_console_that_knows_only_ascii_gets_only_ascii(name: str) -> None:
    raw = io.BytesIO()
    console = Console(file=io.TextIOWrapper(raw, encoding="ascii", write_through=True), width=100)
    print_benchmark(sample.SAMPLES[name](), console)
    assert "torch 2.14.1" in raw.getvalue().decode("ascii")


def test_kernels_are_named_with_the_variants_that_they_were_on_for() -> None:
    timings = [
        sample.timing(name, 9.0, sample.FASTER, Verdict.FASTER, kernels=kernels)
        for name, kernels in (("a", ("cat", "pad")), ("b", ("cat", "pad")), ("c", ("roll",)), ("d", ()))
    ]
    text = render(sample.benchmark(*timings), "text", width=120)
    assert "Kernels   in a and b cat, pad; in c roll\n" in text
    assert "Kernels" not in render(sample.faster(), "text", width=120)


def test_the_chart_survives_in_ascii() -> None:
    raw = io.BytesIO()
    console = Console(file=io.TextIOWrapper(raw, encoding="ascii", write_through=True), width=100)
    print_benchmark(sample.faster(), console)
    assert "[===o====]" in raw.getvalue().decode("ascii")


def test_markup_and_control_characters_of_users_are_shown_not_obeyed() -> None:
    text = render(sample.hostile(), "text", width=4000, color=True)
    assert "[bold red]" in text
    assert "\x1b[31m;" not in text
    assert "\u202e" not in text


def test_the_headline_says_how_many_times_as_fast_with_its_interval() -> None:
    said = "channels_last is 1.31 times as fast as contiguous here (95 % interval 1.28 to 1.34)."
    assert headline(sample.faster()) == said
    assert verdict(sample.faster()) is Verdict.FASTER


def test_the_headline_never_turns_slower_or_unknown_into_a_win() -> None:
    assert headline(sample.slower()).startswith("channels_last is slower than contiguous here: 0.89 times as fast (")
    assert headline(sample.cannot_tell()).startswith("Cannot tell channels_last from contiguous here: 1.006 times")


def test_an_unstable_machine_gets_reasons_and_no_verdict() -> None:
    benchmark = sample.unstable()
    assert headline(benchmark).startswith("Unstable machine, so nothing is said of channels_last against contiguous:")
    text = render(benchmark, "text", width=110)
    for sentence in benchmark.unstable:
        assert sentence in text
    assert "faster" not in text.replace("above 1 is faster", "")


def test_a_verdict_in_the_data_does_not_outlive_an_unstable_machine() -> None:
    benchmark = replace(sample.faster(), unstable=("the clock drifted.",))
    assert verdict(benchmark) is Verdict.UNSTABLE
    assert "unstable machine" in render(benchmark, "text", width=110)
    assert "times as fast" not in headline(benchmark)


def test_a_failed_variant_shows_its_sentence() -> None:
    text = render(sample.several(), "text", width=110)
    assert "ours did not run: ours cannot be copied: it holds a lock." in text
    assert verdict(sample.failed()) is None


def test_a_failed_baseline_leaves_nothing_to_compare_with() -> None:
    benchmark = sample.faster()
    broken = replace(benchmark.variants[0], samples_ms=(), failure="it raised ValueError: x")
    said = headline(replace(benchmark, variants=(broken, benchmark.variants[1])))
    assert said == "Nothing to compare with: contiguous did not run (it raised ValueError: x)."


def test_why_it_stopped_names_what_was_asked_and_what_was_reached() -> None:
    assert stopped(sample.faster()).endswith("after 40 rounds and 48 s: every interval is narrow enough (±2 %).")
    assert stopped(sample.slower()).endswith("with intervals up to ±1.4 % where ±1.2 % was asked for.")


def test_an_interval_that_too_few_rounds_leave_open_is_said_so() -> None:
    open_ = sample.timing("channels_last", 1.0, Ratio(1.4, 0.0, float("inf"), 2), Verdict.CANNOT_TELL)
    text = render(sample.benchmark(open_), "text", width=110)
    assert "too few rounds" in text
    assert "inf" not in text.replace("inference", "")


def test_only_variants_in_channels_last_count_as_slower_in_it() -> None:
    (sentence,) = slower_in_channels_last(sample.several())
    assert sentence.startswith("channels_last+bf16 is slower than contiguous here: 0.33")
    assert slower_in_channels_last(sample.faster()) == []
    assert slower_in_channels_last(replace(sample.several(), unstable=("drift.",))) == []
    other = sample.timing("contiguous+bf16", 9.0, Ratio(0.3, 0.29, 0.31, 9), Verdict.SLOWER)
    assert slower_in_channels_last(sample.benchmark(other)) == []


def test_formats_of_a_measurement_are_its_own() -> None:
    assert formats() == ("html", "json", "text")
    with pytest.raises(RegistryError, match="the known ones are html, json, text"):
        render(sample.faster(), "svg")


@pytest.mark.parametrize("width", [40, 60, 72, 80])
def test_names_of_variants_are_never_cut(width: int) -> None:
    _, table = re.split(r"^variant\b", render(sample.several(), "text", width=width), maxsplit=1, flags=re.MULTILINE)
    for name in ("channels_last+compile", "contiguous+compile", "channels_last+bf16"):
        assert re.search(rf"^{re.escape(name)}( |$)", table, re.MULTILINE)


def test_samples_per_second_are_there_in_80_columns_where_they_fit() -> None:
    assert "samples/s" in render(sample.faster(), "text", width=80)
    assert "samples/s" not in render(sample.several(), "text", width=80)
    assert "samples/s" in render(sample.several(), "text", width=60)  # the names stand above the numbers there


def test_a_setting_that_is_not_set_is_left_out() -> None:
    settings = (("instruction set", "AVX2"), ("oneDNN fp32 precision", "none"), ("deterministic", ""))
    benchmark = replace(sample.faster(), conditions=replace(sample.CONDITIONS, settings=settings))
    text = render(benchmark, "text", width=110)
    assert "Settings  instruction set AVX2\n" in text
    assert "precision" not in text.replace("±", "")


def test_a_terminal_that_says_it_is_0_wide_gets_a_report(capsys: pytest.CaptureFixture[str]) -> None:
    print_benchmark(sample.faster(), Console(width=0))
    assert "channels_last" in capsys.readouterr().out
