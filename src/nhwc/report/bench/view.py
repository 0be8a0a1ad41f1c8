"""What the templates show of a measurement: every decision about words is made here, none there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nhwc.report.bench.chart import Bar, Group, chart_svg
from nhwc.report.bench.numbers import confidence_text, interval_text, rate_text, ratio_text
from nhwc.report.bench.rows import HEADS, rows
from nhwc.report.bench.samples import lanes
from nhwc.report.bench.sections import MEANING, facts, sentences, stopped
from nhwc.report.bench.summary import first_variant, headline, verdict
from nhwc.report.formatting import ms_text, visible
from nhwc.timing import Verdict

if TYPE_CHECKING:
    from nhwc.report.bench.rows import Row
    from nhwc.timing import Benchmark

View = dict[str, Any]
VERDICTS = {
    Verdict.FASTER: {"sign": "✓", "text": "Faster", "style": "good"},
    Verdict.SLOWER: {"sign": "×", "text": "Slower", "style": ""},
    Verdict.CANNOT_TELL: {"sign": "–", "text": "Cannot tell", "style": "even"},
    Verdict.UNSTABLE: {"sign": "!", "text": "Unstable machine", "style": ""},
    None: {"sign": "!", "text": "Nothing compared", "style": ""},
}


def page_view(benchmark: Benchmark) -> View:
    """Everything that the templates name."""
    found = rows(benchmark)
    said = headline(benchmark)
    cut = min((place for mark in (" (", ": ") if (place := said.find(mark)) >= 0), default=len(said))
    shown = any(row.bounds is not None for row in found)
    versions = dict(benchmark.conditions.versions)
    return {
        "target": visible(benchmark.target),
        "version": visible(versions.get("nhwc", "")),
        "lead": said[:cut],
        "rest": said[cut:],
        "verdict": VERDICTS[verdict(benchmark)],
        "figures": _figures(benchmark),
        "unstable": sentences(benchmark.unstable),
        "chart": chart_svg([Group("", tuple(_bar(row) for row in found))], said) if shown else "",
        "heads": {**HEADS, "interval": confidence_text(benchmark.confidence)},
        "rows": found,
        "stopped": stopped(benchmark),
        "meaning": MEANING,
        "lanes": lanes(benchmark),
        "notes": sentences(benchmark.notes),
        "facts": facts(benchmark),
    }


def _bar(row: Row) -> Bar:
    note = "baseline" if row.is_baseline and not row.failure else "did not run" if row.failure else "no ratio"
    return Bar(row.name, row.bounds, row.verdict, note)


def _figures(benchmark: Benchmark) -> list[View]:
    base, first = benchmark.variant(benchmark.baseline), first_variant(benchmark)
    made: list[tuple[str, str, str]] = []
    if first is not None and first.ratio is not None:
        label = f"{visible(first.name)} over {visible(base.name)}"
        if verdict(benchmark) is Verdict.UNSTABLE:
            made.append((label, "not told", f"the machine was unstable; it read {ratio_text(first.ratio)}"))
        else:
            made.append((label, f"{ratio_text(first.ratio)} ×", interval_text(first.ratio)))
    for variant in (base, first):
        if variant is not None and variant.samples_ms:
            rate = benchmark.throughput(variant)
            more = "" if rate is None else f"{rate_text(rate)} samples/s"
            made.append((f"{visible(variant.name)}, median", ms_text(variant.median_ms), more))
    return [{"label": label, "value": value, "more": more} for label, value, more in made]
