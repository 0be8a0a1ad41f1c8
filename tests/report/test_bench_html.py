"""The page of a measurement: complete in itself, every string escaped, and the chart where the numbers are."""

from __future__ import annotations

import re

import pytest
from report import bench_sample as sample
from report.test_html import Page

from nhwc.report.bench import render
from nhwc.report.bench.axis import axis_for
from nhwc.report.bench.chart import Bar, Group, Heading, chart_svg
from nhwc.report.bench.samples import lanes
from nhwc.report.bench.to_html import to_html_fragment
from nhwc.timing import Ratio


def both(name: str) -> list[str]:
    return [render(sample.SAMPLES[name](), "html"), to_html_fragment(sample.SAMPLES[name]())]


class Tree(Page):
    """A page whose SVG elements close themselves."""

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))


@pytest.mark.parametrize("name", sample.SAMPLES)
def test_elements_nest_ids_are_unique_and_nothing_is_loaded(name: str) -> None:
    for text in both(name):
        page = Tree(text)
        assert page.open == []
        ids = page.values("id")
        assert len(ids) == len(set(ids))
        assert [link for link in page.values("href") if link[0] != "#" or link[1:] not in ids] == []
        assert not page.values("src")
        assert not page.tags().keys() & {"link", "img", "iframe", "object", "base", "form", "script"}
        assert "url(" not in text
        assert "@import" not in text


def test_the_policy_of_the_page_admits_no_script() -> None:
    (policy,) = [value for value in Tree(render(sample.faster(), "html")).values("content") if "default-src" in value]
    assert "default-src 'none'" in policy
    assert "script-src" not in policy


def test_hostile_strings_add_no_element_and_no_attribute() -> None:
    def shape(text: str) -> list[tuple[str, tuple[str, ...]]]:
        return [(tag, tuple(attributes)) for tag, attributes in Tree(text).elements]

    harmless = sample.HOSTILE
    hostile = both("hostile")
    sample.HOSTILE = "harmless and as long as the other one, so that both are shortened in the chart"
    try:
        tame = both("hostile")
    finally:
        sample.HOSTILE = harmless
    assert [shape(text) for text in hostile] == [shape(text) for text in tame]
    for text in hostile:
        text.encode("utf-8")
        assert "<script>alert" not in text


def test_the_page_shows_every_variant_with_its_numbers_and_its_failure() -> None:
    text = Tree(render(sample.several(), "html")).text
    for words in ("1.28 to 1.34", "channels_last+compile", "1.91 to 2.03", "ours cannot be copied: it holds a lock."):
        assert words in text
    assert "Stopped after 40 rounds" in text


def test_reasons_for_an_unstable_machine_stand_on_the_page() -> None:
    text = Tree(render(sample.unstable(), "html")).text
    assert "another process used 1.2 of the 2 cores." in text
    assert "What moved under the measurement" in text


def test_the_large_figures_of_an_unstable_machine_hold_no_ratio() -> None:
    large = re.findall(r"<dd>([^<]*) <small>([^<]*)</small></dd>", render(sample.unstable(), "html"))
    assert large[0] == ("not told", "the machine was unstable; it read 1.19")
    assert "×" not in "".join(value for value, _ in large)
    assert "<dd>1.31 × <small>" in render(sample.faster(), "html")


def circle(svg: str) -> float:
    return float(re.search(r'<circle class="at" cx="([\d.]+)"', svg)[1])  # type: ignore[index]


def line_at_one(svg: str) -> float:
    return float(re.search(r'class="one" x1="([\d.]+)"', svg)[1])  # type: ignore[index]


@pytest.mark.parametrize("ratio", [Ratio(1.5, 1.4, 1.6, 9), Ratio(1 / 1.5, 1 / 1.6, 1 / 1.4, 9)])
def test_faster_lies_right_of_the_line_at_1_and_slower_left_of_it(ratio: Ratio) -> None:
    svg = chart_svg([Group("", (Bar("net", ratio),))], "a chart")
    assert (circle(svg) > line_at_one(svg)) is (ratio.estimate > 1)


def test_a_claim_is_a_band_of_its_own_width() -> None:
    svg = chart_svg([Group("", (Bar("net", None, note="failed", claim=(1.08, 1.35)),))], "a chart")
    axis = axis_for([1.08, 1.35])
    width = float(re.search(r'class="claim" x="[\d.]+" y="[\d.]+" width="([\d.]+)"', svg)[1])  # type: ignore[index]
    assert width == pytest.approx((axis.position(1.35) - axis.position(1.08)) * (612 - 232), abs=0.2)
    assert "failed" in svg


def test_a_chart_that_stands_alone_brings_its_colours_for_light_and_dark() -> None:
    svg = chart_svg([Group("", (Bar("net", Ratio(1.5, 1.4, 1.6, 9)),))], "a chart", Heading("a title", ("a line",)))
    assert "prefers-color-scheme:dark" in svg
    for name in re.findall(r"var\((--[a-z-]+)\)", svg):
        assert svg.count(f"{name}:#") == 2, f"{name} has no colour of its own for light and dark"


@pytest.mark.parametrize(
    "values", [[], [1.0], [0.99, 1.01], [0.3, 2.0], [0.01, 100.0], [1.2, 1.9], [0.0, float("inf")], [float("nan")]]
)
def test_an_axis_holds_1_and_all_values_and_has_ticks_that_fit(values: list[float]) -> None:
    axis = axis_for(values)
    assert axis.low < 1 < axis.high
    assert 1.0 in axis.ticks
    assert len(axis.ticks) <= 9
    assert all(axis.low <= tick <= axis.high for tick in axis.ticks)
    assert all(0 <= axis.position(value) <= 1 for value in values)


def test_twice_and_half_lie_equally_far_from_1() -> None:
    axis = axis_for([0.25, 3.0])
    assert axis.position(2.0) - axis.position(1.0) == pytest.approx(axis.position(1.0) - axis.position(0.5))


def test_every_sample_is_a_dot_and_a_slower_round_lies_higher() -> None:
    benchmark = sample.faster()
    drawn = lanes(benchmark)
    assert drawn is not None
    for lane, variant in zip(drawn["rows"], benchmark.variants, strict=True):
        assert len(lane["dots"]) == len(variant.samples_ms)
        slowest = max(range(len(variant.samples_ms)), key=variant.samples_ms.__getitem__)
        assert min(dot["y"] for dot in lane["dots"]) == lane["dots"][slowest]["y"]


def test_no_dot_leaves_its_lane_and_one_that_would_is_hollow_at_the_edge() -> None:
    times = (10.0,) * 60 + (10.4,) * 20 + (40.0, 2.0)
    benchmark = sample.benchmark(sample.timing("channels_last", 1.0, None, None, samples_ms=times))
    drawn = lanes(benchmark)
    assert drawn is not None
    for lane in drawn["rows"]:
        assert all(lane["top"] < dot["y"] < lane["top"] + drawn["deep"] for dot in lane["dots"])
    dots = drawn["rows"][1]["dots"]
    assert [index for index, dot in enumerate(dots) if dot["is_outside"]] == [80, 81]
    tops = [lane["top"] for lane in drawn["rows"]]
    assert tops[0] + drawn["deep"] < drawn["rows"][1]["y"] - 12 < tops[1]
    text = render(benchmark, "html")
    assert text.count('<circle class="outside"') >= 2
    assert text.count('height="60" rx="3"/>') == 2


def test_of_very_many_samples_no_spike_is_lost() -> None:
    times = [10.0] * 5000
    times[1234] = 99.0
    benchmark = sample.benchmark(sample.timing("channels_last", 1.0, None, None, samples_ms=tuple(times)))
    drawn = lanes(benchmark)
    assert drawn is not None
    lane = drawn["rows"][1]
    assert len(lane["dots"]) <= 700
    assert sum(dot["y"] < lane["middle"] - 20 for dot in lane["dots"]) == 1
