"""Every round's time as a dot, a lane for each variant, so that drift, spikes and two speeds can be seen."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from nhwc.report.formatting import ms_text, plural, visible

if TYPE_CHECKING:
    from nhwc.timing import Benchmark

WIDTH = 860
_LANE, _DOTS, _INDENT = 84, 52, 6
_LEAST_SPAN = math.log(1.05)
_MOST_DOTS = 600


def lanes(benchmark: Benchmark) -> dict[str, Any] | None:
    """What the template draws; None where nothing was sampled. All lanes have one scale, so that they compare."""
    sampled = [each for each in benchmark.variants if each.samples_ms and each.median_ms]
    if not sampled:
        return None
    spans = [
        abs(math.log(sample / each.median_ms))
        for each in sampled
        for sample in each.samples_ms
        if sample > 0 and each.median_ms
    ]
    span = max([_LEAST_SPAN, *spans])
    made = []
    for place, each in enumerate(sampled):
        median = each.median_ms or 1.0
        middle = place * _LANE + _LANE - _DOTS / 2 - 4
        made.append(
            {
                "label": f"{visible(each.name)}: median {ms_text(median)}, "
                f"{ms_text(min(each.samples_ms))} to {ms_text(max(each.samples_ms))}",
                "y": place * _LANE + 17,
                "middle": middle,
                "dots": [
                    {
                        "x": round(_INDENT + (WIDTH - 2 * _INDENT) * index / max(1, len(each.samples_ms) - 1), 1),
                        "y": round(middle - _DOTS / 2 * math.log(sample / median) / span, 1),
                    }
                    for index, sample in _thinned(each.samples_ms)
                    if sample > 0
                ],
            }
        )
    count = max(len(each.samples_ms) for each in sampled)
    return {
        "width": WIDTH,
        "height": len(sampled) * _LANE + 4,
        "rows": made,
        "about": f"Milliseconds of {plural(count, 'round')}, from the first at the left to the last at the right",
        "span": f"{math.exp(span):.2f}",
        "count": plural(count, "round"),
    }


def _thinned(samples: tuple[float, ...]) -> list[tuple[int, float]]:
    """Round and time; of very many, the least and the greatest of each stretch, so that no spike is lost."""
    numbered = list(enumerate(samples))
    size = math.ceil(2 * len(samples) / _MOST_DOTS)
    if size <= 2:
        return numbered
    kept: list[tuple[int, float]] = []
    for start in range(0, len(numbered), size):
        stretch = numbered[start : start + size]
        kept += sorted({min(stretch, key=lambda each: each[1]), max(stretch, key=lambda each: each[1])})
    return kept
