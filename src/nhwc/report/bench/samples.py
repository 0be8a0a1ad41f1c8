"""Every round's time as a dot, a lane for each variant, so that drift, spikes and two speeds can be seen."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from nhwc.report.formatting import ms_text, plural, visible

if TYPE_CHECKING:
    from nhwc.timing import Benchmark

WIDTH = 860
_LANE, _DOTS, _INDENT = 92, 52, 10
_EDGE = 4  # from the outermost dot to the lane's edge
_LEAST_SPAN = math.log(1.05)
_INSIDE = 0.95  # the share of the dots that sets the lanes' height: a lone spike shall not flatten the others
_ROOM = 1.5
_MOST_DOTS = 600


def lanes(benchmark: Benchmark) -> dict[str, Any] | None:
    """What the template draws; None where nothing was sampled.

    All lanes have one scale, so that they compare; no dot leaves its lane.
    """
    sampled = [each for each in benchmark.variants if each.samples_ms and each.median_ms]
    if not sampled:
        return None
    spans = [
        abs(math.log(sample / each.median_ms))
        for each in sampled
        for sample in each.samples_ms
        if sample > 0 and each.median_ms
    ]
    spans.sort()
    usual = spans[math.ceil(_INSIDE * len(spans)) - 1] if spans else 0.0
    span = max(_LEAST_SPAN, min(_ROOM * usual, spans[-1] if spans else 0.0))
    made = []
    for place, each in enumerate(sampled):
        median = each.median_ms or 1.0
        middle = place * _LANE + _LANE - _DOTS / 2 - 8
        made.append(
            {
                "label": f"{visible(each.name)}: median {ms_text(median)}, "
                f"{ms_text(min(each.samples_ms))} to {ms_text(max(each.samples_ms))}",
                "y": place * _LANE + 17,
                "middle": middle,
                "top": middle - _DOTS / 2 - _EDGE,
                "dots": [
                    {
                        "x": round(_INDENT + (WIDTH - 2 * _INDENT) * index / max(1, len(each.samples_ms) - 1), 1),
                        **_height(math.log(sample / median) / span, middle),
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
        "deep": _DOTS + 2 * _EDGE,
        "rows": made,
        "about": f"Milliseconds of {plural(count, 'round')}, from the first at the left to the last at the right",
        "span": f"{math.exp(span):.2f}",
        "count": plural(count, "round"),
    }


def _height(share: float, middle: float) -> dict[str, Any]:
    """Where a dot lies in its lane; one that would lie outside is at the edge, and hollow."""
    return {"y": round(middle - _DOTS / 2 * max(-1.0, min(1.0, share)), 1), "is_outside": abs(share) > 1.0 + 1e-9}


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
