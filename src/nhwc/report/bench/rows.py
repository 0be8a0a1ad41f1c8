"""The table of a measurement: one row for each variant, and what the chart draws of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nhwc.report.bench.numbers import interval_text, rate_text, ratio_text
from nhwc.report.formatting import NOTHING, bytes_text, ms_text, visible
from nhwc.timing import Verdict

if TYPE_CHECKING:
    from nhwc.timing import Benchmark, Ratio


@dataclass(frozen=True)
class Row:
    """Texts of one variant. failure: its sentence where it did not run, empty elsewhere."""

    name: str
    spec: str
    ms: str
    rate: str
    ratio: str
    interval: str
    verdict: str
    peak: str
    failure: str
    bounds: Ratio | None
    is_baseline: bool


HEADS = {
    "name": "variant",
    "ms": "median ms",
    "rate": "samples/s",
    "ratio": "ratio",
    "interval": "interval",
    "verdict": "verdict",
    "peak": "peak memory",
}


def rows(benchmark: Benchmark) -> tuple[Row, ...]:
    """A row for each variant, in the order of the measurement."""
    made = []
    for variant in benchmark.variants:
        is_baseline = variant.name == benchmark.baseline
        word = "" if variant.verdict is None else variant.verdict.value
        if benchmark.unstable and variant.ratio is not None:
            word = Verdict.UNSTABLE.value
        made.append(
            Row(
                name=visible(variant.name),
                spec="" if variant.spec == variant.name else visible(variant.spec),
                ms=ms_text(variant.median_ms).removesuffix(" ms"),
                rate=rate_text(benchmark.throughput(variant)),
                ratio="1" if is_baseline and not variant.failure else ratio_text(variant.ratio),
                interval=NOTHING if is_baseline else interval_text(variant.ratio),
                verdict="failed" if variant.failure else "baseline" if is_baseline else word or NOTHING,
                peak=bytes_text(variant.peak_bytes),
                failure=visible(variant.failure.strip().rstrip(".")),
                bounds=None if is_baseline else variant.ratio,
                is_baseline=is_baseline,
            )
        )
    return tuple(made)
