"""Two measurements compared: what changed, and every reason why some cannot be compared."""

from __future__ import annotations

from dataclasses import replace

import pytest
from report import bench_sample as sample

from nhwc.report.bench.comparison import as_document, changes, different_versions, headline, refusals, render_text
from nhwc.timing import Benchmark, Ratio, Verdict


def with_ratio(estimate: float, low: float, high: float, **fields: object) -> Benchmark:
    last = sample.timing("channels_last", 600.0, Ratio(estimate, low, high, 40), Verdict.FASTER)
    return sample.benchmark(last, **fields)


def with_conditions(**fields: object) -> Benchmark:
    return replace(sample.faster(), conditions=replace(sample.CONDITIONS, **fields))  # type: ignore[arg-type]


def versions(**changed: str) -> tuple[tuple[str, str], ...]:
    return tuple({**dict(sample.CONDITIONS.versions), **changed}.items())


def test_intervals_that_exclude_each_other_are_a_change() -> None:
    first, second = with_ratio(1.3, 1.28, 1.32), with_ratio(1.5, 1.45, 1.55)
    (change,) = changes(first, second)
    assert (change.apart, change.word) == (True, "better")
    assert change.factor == pytest.approx(1.5 / 1.3)
    assert headline(first, second) == "Against contiguous, channels_last went from 1.30 to 1.50 times as fast."
    (back,) = changes(second, first)
    assert (back.apart, back.word) == (True, "worse")


def test_intervals_that_overlap_are_no_change() -> None:
    first, second = with_ratio(1.3, 1.28, 1.40), with_ratio(1.5, 1.39, 1.55)
    assert changes(first, second)[0].word == "cannot tell"
    assert headline(first, second) == "No ratio changed by more than its interval."


def test_the_text_says_that_times_of_two_files_are_not_compared() -> None:
    text = render_text(with_ratio(1.3, 1.28, 1.32), with_ratio(1.5, 1.45, 1.55))
    assert "Milliseconds are not" in text
    assert " ms" not in text
    assert "1.28 to 1.32" in text
    assert "+15.4 %" in text


def test_only_variants_in_both_are_compared() -> None:
    assert [change.variant for change in changes(sample.several(), sample.faster())] == ["channels_last"]


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (replace(sample.faster(), target="resnet18"), "other model (resnet50, resnet18)"),
        (replace(sample.faster(), mode="training"), "other mode (inference, training)"),
        (replace(sample.faster(), batch=1), "other batch (8, 1)"),
        (replace(sample.faster(), batch=None), "other batch (8, not given)"),
        (
            replace(sample.faster(), inputs=(((8, 3, 64, 64), "float32"),)),
            "other inputs ((8, 3, 224, 224) float32",
        ),
        (replace(sample.faster(), inputs=(((8, 3, 224, 224), "bfloat16"),)), "(8, 3, 224, 224) bfloat16)"),
        (replace(sample.faster(), confidence=0.99), "other confidence of the intervals (0.95, 0.99)"),
        (replace(sample.faster(), margin=0.02), "other margin of the intervals (0.01, 0.02)"),
        (replace(sample.faster(), baseline="channels_last"), "other baseline (contiguous, channels_last)"),
        (with_conditions(device="cuda NVIDIA H200"), "other device (cpu, cuda NVIDIA H200)"),
        (with_conditions(processor="another"), "other processor"),
        (with_conditions(cores=4.0), "other number of cores (2.0, 4.0)"),
        (with_conditions(threads=1), "other number of threads (2, 1)"),
        (with_conditions(allocator="tcmalloc"), "other allocator (glibc malloc, tcmalloc)"),
        (
            with_conditions(settings=(("instruction set", "AVX512"), ("deterministic", "off"))),
            "setting instruction set",
        ),
        (with_conditions(settings=(("instruction set", "AVX2"),)), "other setting deterministic (off, not given)"),
        (with_conditions(versions=versions(torch="2.13.0", python="3.12.1")), "more than one package differs (torch"),
        (with_conditions(versions=versions(nhwc="0.2.0", python="3.12.1")), "more than one package differs (nhwc"),
        (replace(sample.faster(), unstable=("drift.",)), "the second was measured on an unstable machine (drift)"),
        (sample.failed(), "no variant has a ratio in both"),
        (
            sample.benchmark(sample.timing("channels_last", 1.0, sample.FASTER, Verdict.FASTER, spec="module")),
            "channels_last means another variant (channels_last, module)",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused_with_its_reason(second: Benchmark, reason: str) -> None:
    (found,) = refusals(sample.faster(), second)
    assert reason in found


def with_kernels(*names: str, told: bool = True) -> Benchmark:
    last = sample.timing("channels_last", 601.4, sample.FASTER, Verdict.FASTER, kernels=names if told else None)
    return sample.benchmark(last)


def test_other_kernels_are_refused_by_their_names() -> None:
    (reason,) = refusals(with_kernels("cat", "pad"), with_kernels("cat", "roll", "softmax"))
    assert reason == (
        "channels_last ran with other kernels (the first alone with pad, the second alone with roll, softmax)"
    )
    (reason,) = refusals(with_kernels(), with_kernels("cat"))
    assert reason == "channels_last ran with other kernels (the second alone with cat)"
    assert refusals(with_kernels("cat", "pad"), with_kernels("pad", "cat")) == []
    assert refusals(with_kernels("cat"), with_kernels(told=False)) == []  # a file from before they were told


def test_every_reason_is_given_at_once() -> None:
    second = replace(with_conditions(threads=1, allocator="tcmalloc"), mode="training", unstable=("drift.",))
    assert len(refusals(sample.faster(), second)) == 4


def test_an_unstable_first_measurement_is_refused_too() -> None:
    assert "the first was measured" in refusals(replace(sample.faster(), unstable=("drift.",)), sample.faster())[0]


def test_one_package_may_differ_and_is_then_what_is_compared() -> None:
    other = with_conditions(versions=versions(torch="2.13.0", torchvision="0.28.0"))
    assert refusals(sample.faster(), other) == []
    assert different_versions(sample.faster(), other) == ["torch 2.14.1 and 2.13.0", "torchvision 0.29.1 and 0.28.0"]
    assert "torch 2.14.1 and 2.13.0" in headline(sample.faster(), other)
    assert refusals(sample.faster(), with_conditions(versions=versions(nhwc="0.2.0"))) == []


def test_what_does_not_decide_a_ratio_may_differ() -> None:
    other = replace(sample.faster(), seed=7, precision=0.01, budget_s=5.0, started="later", seconds=1.0)
    assert refusals(sample.faster(), other) == []


def test_the_document_holds_what_the_text_says() -> None:
    document = as_document(with_ratio(1.3, 1.28, 1.32), with_ratio(1.5, 1.45, 1.55))
    (row,) = document["changes"]  # type: ignore[misc]
    assert (row["variant"], row["change"], row["intervals_exclude_each_other"]) == ("channels_last", "better", True)
