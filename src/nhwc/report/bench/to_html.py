"""The measurement as one HTML page that loads and runs nothing, and as a fragment for notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nhwc.report.bench.view import page_view
from nhwc.report.registry import report_format
from nhwc.report.templating import fill, ours

if TYPE_CHECKING:
    from nhwc.timing import Benchmark


@report_format("html", "bench")
def render_html(benchmark: Benchmark) -> str:
    """One self-contained page: the ratios as a chart and a table, every sample, and the conditions."""
    style = ours("parts.css", "page.css", "chart.css", "bench.css")
    return fill("bench_page.j2", page_view(benchmark), style=style)


def to_html_fragment(benchmark: Benchmark) -> str:
    """The measurement as a part of a page, for notebooks: styles of its own, no script."""
    return fill("bench_fragment.j2", page_view(benchmark), style=ours("parts.css", "chart.css", "bench.css"))
