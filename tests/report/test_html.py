"""The HTML page: complete in itself, every string of a user escaped, every link leads somewhere, readable colours."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from html.parser import HTMLParser
from importlib.resources import files

import pytest
from report import sample

from nhwc.report import render
from nhwc.report.to_html import to_html_fragment

CSS = (files("nhwc.report") / "templates" / "parts.css").read_text(encoding="utf-8")
VOID = {"meta", "input"}


class Page(HTMLParser):
    """Elements with their attributes, and the text in each script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.scripts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        elif self.open and self.open[-1] != "style":
            self.text += data

    def tags(self) -> Counter[str]:
        return Counter(tag for tag, _ in self.elements)

    def values(self, attribute: str) -> list[str]:
        return [attributes[attribute] or "" for _, attributes in self.elements if attribute in attributes]


def both(name: str) -> list[str]:
    report = sample.SAMPLES[name]()
    return [render(report, "html"), to_html_fragment(report)]


@pytest.mark.parametrize("name", sample.SAMPLES)
def test_elements_nest_ids_are_unique_and_links_lead_somewhere(name: str) -> None:
    for text in both(name):
        page = Page(text)
        assert page.open == []
        ids = page.values("id")
        assert len(ids) == len(set(ids))
        for link in page.values("href"):
            assert link[0] == "#"
            assert link[1:] in ids


@pytest.mark.parametrize("name", sample.SAMPLES)
def test_nothing_is_loaded_from_anywhere(name: str) -> None:
    for text in both(name):
        page = Page(text)
        assert not page.values("src")
        assert not page.tags().keys() & {"link", "img", "iframe", "object", "base", "form"}
        assert "url(" not in text
        assert "@import" not in text


def test_the_policy_admits_only_the_page_s_own_script() -> None:
    page = Page(render(sample.hostile(), "html"))
    (policy,) = [value for value in page.values("content") if "default-src" in value]
    digest = base64.b64encode(hashlib.sha256(page.scripts[1].encode()).digest()).decode()
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}'" in policy


def test_hostile_strings_add_no_element_and_no_attribute() -> None:
    def shape(text: str) -> list[tuple[str, tuple[str, ...]]]:
        return [(tag, tuple(attributes)) for tag, attributes in Page(text).elements]

    harmless = sample.HOSTILE
    hostile = both("hostile")
    sample.HOSTILE = "harmless"
    try:
        tame = both("hostile")
    finally:
        sample.HOSTILE = harmless
    assert [shape(text) for text in hostile] == [shape(text) for text in tame]


def test_hostile_strings_are_shown_as_they_are() -> None:
    for text in both("hostile"):
        page = Page(text)
        assert "</script><script>alert(1)</script>[bold red]\"'&<b>\\u202e\\x1b[31m;{{ 7*7 }}\\ud800" in page.text
        for character in "\u202e\x1b\ud800":
            assert character not in text
        text.encode("utf-8")


def test_embedded_data_is_json_that_cannot_end_its_element() -> None:
    text = render(sample.hostile(), "html")
    embedded = Page(text).scripts[0]
    assert not set("<>&\u2028\u2029") & set(embedded)
    data = json.loads(embedded)
    assert any("</script>" in string for string in data["strings"])


def test_every_operator_call_and_cell_is_in_the_data() -> None:
    report = sample.training()
    page = Page(render(report, "html"))
    data = json.loads(page.scripts[0])
    assert len(data["calls"]) == len(report.trace.calls)
    assert {int(value) for value in page.values("data-c")} <= set(range(len(data["calls"])))
    first = [data["strings"][cell] if isinstance(cell, int) else cell for cell in data["calls"][0]]
    assert first == [
        *("forward", "convolution", "features.0.conv", "Conv2d", "(8, 3, 224, 224)", "(8, 32, 112, 112)"),
        *("(401408, 1, 3584, 32)", "channels last", "1.9", "torchvision/models/net.py:10"),
    ]


def test_a_page_of_three_thousand_calls_stays_under_two_megabytes() -> None:
    assert len(render(sample.large(3000), "html").encode()) < 2_000_000


def test_the_page_tells_what_the_report_tells() -> None:
    text = Page(render(sample.static_shufflenet(), "html")).text
    for words in (
        "Not in channels last end to end:",
        "x = torch.transpose(x, 1, 2).contiguous()",
        "torchvision/models/shufflenetv2.py:29",
        "Call torch.channel_shuffle(x, groups)",
        "copies inside kernels and libraries cannot be seen",
        "62 weights restrided or copied",
        "AMD EPYC 7763",
        "and 3 calls after it: add",
    ):
        assert words in text
    assert "used in two places" in Page(render(sample.training(), "html")).text


def test_cells_say_their_format_in_words_and_by_a_letter() -> None:
    page = Page(render(sample.shufflenet(), "html"))
    cells = [attributes for tag, attributes in page.elements if tag == "button" and "data-c" in attributes]
    assert cells[6]["aria-label"] == "stage2.0, clone: contiguous"
    assert len(cells) == 72
    assert page.text.count("C") > 16


def test_a_fragment_runs_nothing_and_styles_only_itself() -> None:
    text = to_html_fragment(sample.shufflenet())
    assert "script" not in Page(text).tags()
    outermost, depth = [], 0
    for line in CSS.splitlines():
        if depth == 0 and "{" in line:
            outermost.append(line.split("{")[0].strip())
        depth += line.count("{") - line.count("}")
    assert depth == 0
    assert all(selector.startswith(".nhwc") for selector in outermost)


def test_two_fragments_in_one_notebook_share_no_id() -> None:
    first, second = (Page(to_html_fragment(sample.shufflenet())).values("id") for _ in range(2))
    assert first
    assert not set(first) & set(second)


def luminance(color: str) -> float:
    channels = (int(color[place : place + 2], 16) / 255 for place in (1, 3, 5))
    red, green, blue = (each / 12.92 if each <= 0.03928 else ((each + 0.055) / 1.055) ** 2.4 for each in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("text", "ground", "least"),
    [
        *[(text, ground, 4.5) for text in ("ink", "soft", "cost", "good") for ground in ("paper", "raised")],
        *[("on", ground, 4.5) for ground in ("first", "first-stripe", "other")],
        ("ink", "either", 4.5),
        ("paper", "cost", 4.5),
        ("paper", "good", 4.5),
        *[(mark, "paper", 3.0) for mark in ("last", "first", "other", "cost", "focus")],
    ],
)
def test_colours_have_the_contrast_of_wcag_aa(text: str, ground: str, least: float, scheme: int) -> None:
    colours = {
        name: (light, dark) for name, light, dark in re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", CSS)
    }
    assert contrast(colours[text][scheme], colours[ground][scheme]) >= least
