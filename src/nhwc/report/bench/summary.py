"""The first sentence of every measurement: what a variant is worth here, or why nothing can be said."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from nhwc.report.bench.numbers import confidence_text, interval_text, ratio_text
from nhwc.report.formatting import ms_text, visible
from nhwc.timing import Verdict

if TYPE_CHECKING:
    from nhwc.timing import Benchmark, VariantTiming


def first_variant(benchmark: Benchmark) -> VariantTiming | None:
    """The variant that the first sentence is about: the first one besides the baseline."""
    return next((each for each in benchmark.variants if each.name != benchmark.baseline), None)


def verdict(benchmark: Benchmark) -> Verdict | None:
    """The verdict on ``first_variant``; None where there is none, or it did not run."""
    first = first_variant(benchmark)
    if first is None or first.failure or benchmark.variant(benchmark.baseline).failure:
        return None
    return Verdict.UNSTABLE if benchmark.unstable else first.verdict


def headline(benchmark: Benchmark) -> str:
    """One sentence on the first variant, with the fastest one where that is another."""
    base, first = benchmark.variant(benchmark.baseline), first_variant(benchmark)
    if base.failure:
        return f"Nothing to compare with: {_name(base)} did not run ({_reason(base.failure)})."
    if first is None:
        return f"{_name(base)} takes {ms_text(base.median_ms)} a step here; no variant was set against it."
    if first.failure:
        said = f"{_name(first)} did not run: {_reason(first.failure)}"
    elif benchmark.unstable or first.verdict is Verdict.UNSTABLE:
        why = f": {_reason(benchmark.unstable[0])}" if benchmark.unstable else ""
        return f"Unstable machine, so nothing is said of {_name(first)} against {_name(base)}{why}."
    else:
        said = _said(first, benchmark)
    return f"{said}{_fastest(benchmark, first)}."


def slower_in_channels_last(benchmark: Benchmark) -> list[str]:
    """A sentence for each variant in channels last that is slower than the baseline; none on an unstable machine."""
    if benchmark.unstable:
        return []
    return [
        _said(variant, benchmark)
        for variant in benchmark.variants
        if variant.verdict is Verdict.SLOWER and "channels_last" in variant.spec.split("+")
    ]


def untold_in_channels_last(benchmark: Benchmark) -> list[str]:
    """Why it cannot be said whether channels last is slower, a sentence for each reason; none where it can."""
    if benchmark.unstable:
        return [f"nothing can be said, the machine was unstable: {_reason(benchmark.unstable[0])}"]
    return [
        f"nothing can be said of {_name(variant)}: "
        + (
            "the machine was unstable"
            if variant.verdict is Verdict.UNSTABLE
            else "too few rounds, give it more --budget"
        )
        for variant in benchmark.variants
        if variant.name != benchmark.baseline and not variant.failure and "channels_last" in variant.spec.split("+")
        if variant.verdict is Verdict.UNSTABLE or variant.ratio is None or not math.isfinite(variant.ratio.high)
    ]


def did_not_run(benchmark: Benchmark) -> list[str]:
    """A sentence for each variant that was asked for and did not run."""
    return [f"{_name(each)} did not run: {_reason(each.failure)}" for each in benchmark.variants if each.failure]


def _said(variant: VariantTiming, benchmark: Benchmark) -> str:
    if variant.ratio is None:
        return f"{_name(variant)} was not compared with {benchmark.baseline}: it has too few samples"
    ratio = ratio_text(variant.ratio)
    interval = f"({confidence_text(benchmark.confidence)} {interval_text(variant.ratio)})"
    base = visible(benchmark.baseline)
    if variant.verdict is Verdict.FASTER:
        return f"{_name(variant)} is {ratio} times as fast as {base} here {interval}"
    if variant.verdict is Verdict.SLOWER:
        return f"{_name(variant)} is slower than {base} here: {ratio} times as fast {interval}"
    return f"Cannot tell {_name(variant)} from {base} here: {ratio} times as fast {interval}"


def _fastest(benchmark: Benchmark, first: VariantTiming) -> str:
    faster = [
        each
        for each in benchmark.variants
        if each.ratio is not None and each.verdict is Verdict.FASTER and each is not first
    ]
    if not faster or benchmark.unstable:
        return ""
    best = max(faster, key=lambda each: each.ratio.estimate if each.ratio is not None else 0.0)
    if best.ratio is None or (first.ratio is not None and first.ratio.estimate >= best.ratio.estimate):
        return ""
    return f"; the fastest is {_name(best)}, {ratio_text(best.ratio)} times ({interval_text(best.ratio)})"


def _name(variant: VariantTiming) -> str:
    return visible(variant.name)


def _reason(sentence: str) -> str:
    return visible(sentence.strip().rstrip("."))
