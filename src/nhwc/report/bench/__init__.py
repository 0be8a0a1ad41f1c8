"""Reports of measurements: a terminal page with a chart of ratios, one self-contained HTML page, versioned JSON.

A new format is one file here that registers its function for the kind "bench", and a line below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nhwc.report.bench import comparison, to_html, to_json, to_terminal
from nhwc.report.bench.summary import (
    did_not_run,
    headline,
    slower_in_channels_last,
    untold_in_channels_last,
    verdict,
)
from nhwc.report.registry import formats as known_formats
from nhwc.report.registry import renderer

if TYPE_CHECKING:
    from nhwc.timing import Benchmark

__all__ = [
    "comparison",
    "did_not_run",
    "formats",
    "headline",
    "render",
    "slower_in_channels_last",
    "to_html",
    "to_json",
    "to_terminal",
    "untold_in_channels_last",
    "verdict",
]


def formats() -> tuple[str, ...]:
    """Names of the formats of a measurement, sorted."""
    return known_formats("bench")


def render(benchmark: Benchmark, format: str = "text", **options: Any) -> str:  # noqa: A002 the public word for it
    """A measurement as text in one of ``formats()``: "html", "json" or "text".

    Options are the format's own, such as ``width=100`` for text. Raises RegistryError for an unknown format.
    """
    return renderer(format, "bench")(benchmark, **options)
