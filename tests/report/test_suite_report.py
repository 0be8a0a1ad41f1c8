"""The report of a suite: each ratio beside what the tutorial claims, and nothing claimed that was not measured."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from report import bench_sample, suite_sample
from report.test_bench_html import Tree

from nhwc.report.registry import formats, renderer
from nhwc.report.suite.summary import failures, headlines, row_text
from nhwc.suite import SuiteResult
from nhwc.timing import Verdict


def rendered(format_: str, result: SuiteResult | None = None) -> str:
    return renderer(format_, "suite")(result or suite_sample.suite())


@pytest.mark.parametrize("width", [80, 110])
def test_golden_text(width: int, golden: Callable[[str, str], None]) -> None:
    golden(renderer("text", "suite")(suite_sample.suite(), width=width), f"bench/suite_{width}.txt")


def test_golden_picture(golden: Callable[[str, str], None]) -> None:
    golden(rendered("svg"), "bench/suite.svg")


def test_each_mode_gets_a_sentence_that_adds_up() -> None:
    inference, training = headlines(suite_sample.suite())
    assert "faster in 5 of 8 models, slower in 1, not to be told apart in 1, 1 failed" in inference
    assert inference.endswith("against the tutorial's range, 3 below, 1 above, 1 within, 1 across an edge.")
    assert training.startswith(
        "In training, nothing can be said of 1 of 3 models: the machine was unstable; channels_last is faster in 1 of "
        "2 others, 1 failed"
    )


def test_of_unstable_results_alone_nothing_is_said_to_be_faster() -> None:
    result = suite_sample.suite()
    rows = [row for row in result.rows if row.verdict is Verdict.UNSTABLE]
    (said,) = headlines(replace(result, rows=(rows[0], replace(rows[0], model="vgg16"))))
    assert said == "In training, nothing can be said of 2 of 2 models: the machine was unstable."


def test_why_a_result_is_unstable_stands_in_every_readable_report() -> None:
    for format_ in ("text", "html"):
        assert "vgg11 in training: the clock drifted." in rendered(format_)
    assert '<tr class="soft"><td>vgg11</td><td class="n">1.40</td>' in rendered("html")
    (row,) = [row for row in json.loads(rendered("json"))["rows"] if row["verdict"] == "unstable machine"]
    assert row["unstable"] == ["the clock drifted."]


def test_the_page_says_which_file_holds_the_samples() -> None:
    assert "in MODEL.MODE.json, such as resnet50.training.json" in rendered("html")


def test_the_geometric_mean_is_that_of_the_ratios_told() -> None:
    (inference, _) = headlines(suite_sample.suite())
    told = [
        row.ratio.estimate
        for row in suite_sample.suite().of_mode("inference")
        if row.ratio is not None and row.verdict is not Verdict.UNSTABLE
    ]
    product = 1.0
    for ratio in told:
        product *= ratio
    assert f"the geometric mean of the ratios is {product ** (1 / len(told)):.2f}" in inference


def test_each_ratio_stands_beside_its_claim() -> None:
    texts = {(row.model, row.mode): row_text(row) for row in suite_sample.suite().rows}
    assert (texts["alexnet", "inference"].claim, texts["alexnet", "inference"].standing) == (
        "1.26 to 1.76",
        "below",
    )
    assert texts["resnet50", "inference"].standing == "within"
    assert texts["resnext101_32x8d", "inference"].standing == "across an edge"
    assert texts["squeezenet1_1", "inference"].standing == "above"
    assert (texts["mobilenet_v2", "inference"].claim, texts["mobilenet_v2", "inference"].standing) == (
        "not listed",
        "",
    )


def test_an_unstable_row_is_not_set_against_its_claim() -> None:
    (row,) = [row for row in suite_sample.suite().rows if (row.model, row.mode) == ("vgg11", "training")]
    text = row_text(row)
    assert (text.verdict, text.standing, text.place, text.is_soft) == ("unstable", "", "unstable", True)


def test_what_failed_is_told_by_model_and_mode() -> None:
    assert failures(suite_sample.suite()) == [
        "vgg19 in inference: its process was ended by SIGKILL, as where memory runs out.",
        "vgg13 in training: the model raised RuntimeError: view size.",
    ]


def test_every_format_tells_every_model() -> None:
    assert formats("suite") == ("html", "json", "svg", "text")
    for format_ in formats("suite"):
        text = rendered(format_)
        for row in suite_sample.suite().rows:
            assert row.model in text


def test_the_text_says_that_the_ranges_are_of_another_machine_and_what_is_missing() -> None:
    text = " ".join(rendered("text").split())
    assert "another machine (Xeon, Ice Lake or newer)" in text
    assert "2 measurements are missing yet." in text


def test_without_a_claim_for_the_device_nothing_is_said_to_be_claimed() -> None:
    result = suite_sample.suite()
    bare = replace(result, rows=tuple(replace(row, claim=None) for row in result.rows))
    text = " ".join(rendered("text", bare).split())
    assert "The tutorial claims nothing for this kind of device." in text
    assert "below" not in text
    assert 'class="claim"' not in rendered("html", bare)


def test_the_page_is_complete_in_itself_and_escapes_every_string() -> None:
    for result in (suite_sample.suite(), suite_sample.hostile()):
        text = rendered("html", result)
        page = Tree(text)
        assert page.open == []
        assert not page.values("src")
        assert not page.tags().keys() & {"script", "link", "img", "iframe", "object", "base", "form"}
        assert "url(" not in text
        text.encode("utf-8")
    assert "<script>alert" not in rendered("html", suite_sample.hostile())
    assert "<script>alert" not in rendered("svg", suite_sample.hostile())


def test_the_chart_has_a_bar_for_each_ratio_and_a_band_for_each_claim() -> None:
    svg, result = rendered("svg"), suite_sample.suite()
    assert svg.count('class="at"') == sum(row.ratio is not None for row in result.rows)
    assert svg.count('class="claim"') == sum(row.claim is not None for row in result.rows)
    assert svg.count(">failed</text>") == 2
    assert ", unstable</text>" in svg


def test_the_picture_says_by_itself_what_it_shows_and_where_it_was_measured() -> None:
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", rendered("svg"))
    assert texts[:3] == [
        "Channels last over contiguous: how many times as fast",
        "cpu, AMD EPYC 7763 64-Core Processor, 2 threads",
        "torch 2.14.1, batch 8, inference and training, 2026-03-14",
    ]
    for words in ("the range that the tutorial claims (Xeon, Ice Lake or newer)", "times as fast (logarithmic)"):
        assert words in texts
    assert {"Inference", "Training"} <= set(texts)
    bare = replace(suite_sample.suite(), rows=tuple(replace(row, claim=None) for row in suite_sample.suite().rows))
    assert "claims" not in "".join(re.findall(r"<text[^>]*>([^<]*)</text>", rendered("svg", bare)))
    assert "how many times as fast" in rendered("svg", replace(bare, rows=()))


def test_the_summary_holds_a_row_for_each_model_and_mode() -> None:
    document = json.loads(rendered("json"))
    assert (document["format"], document["version"], document["missing"]) == ("nhwc-suite-summary", 1, 2)
    rows = {(row["model"], row["mode"]): row for row in document["rows"]}
    assert rows["alexnet", "inference"]["ratio"]["low"] == 1.14
    assert rows["alexnet", "inference"]["claim"]["high"] == 1.76
    assert rows["vgg19", "inference"]["failure"].startswith("its process was ended by SIGKILL")
    assert rows["vgg11", "training"]["verdict"] == "unstable machine"
    assert rows["resnet50", "training"]["median_ms"]["contiguous"] == bench_sample.faster().variants[0].median_ms


def test_a_folder_without_results_says_so() -> None:
    empty = replace(suite_sample.suite(), rows=(), missing=68)
    assert headlines(empty) == ["Nothing was measured yet."]
    assert "68 measurements are missing yet." in " ".join(rendered("text", empty).split())
    assert Tree(rendered("html", empty)).open == []


def test_no_cell_is_cut_in_80_columns() -> None:
    text = renderer("text", "suite")(suite_sample.suite(), width=80)
    for words in (" ratio ", " across an edge\n", " cannot tell ", "resnext101_32x8d "):
        assert words in text
