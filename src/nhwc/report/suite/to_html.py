"""A suite as one HTML page with one chart of all ratios, and the chart alone as a picture for a README."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nhwc.report.bench.chart import Bar, Group, chart_svg
from nhwc.report.formatting import visible
from nhwc.report.registry import report_format
from nhwc.report.suite.sections import SAMPLES, facts, remarks
from nhwc.report.suite.summary import claimed_for, headlines, row_text, unstable_reasons
from nhwc.report.templating import fill, ours

if TYPE_CHECKING:
    from nhwc.suite import SuiteResult, SuiteRow


@report_format("html", "suite")
def render_html(result: SuiteResult) -> str:
    """One self-contained page: the chart of all ratios, a table for each mode, and the conditions."""
    style = ours("parts.css", "page.css", "chart.css", "bench.css")
    return fill("suite_page.j2", _view(result), style=style)


@report_format("svg", "suite")
def render_svg(result: SuiteResult) -> str:
    """The chart as a file that stands for itself, light or dark as the reader prefers."""
    return str(chart_svg(_groups(result), " ".join(headlines(result)), alone=True)) + "\n"


def _view(result: SuiteResult) -> dict[str, Any]:
    shown = any(row.ratio is not None for row in result.rows)
    said = headlines(result)
    where = claimed_for(result)
    return {
        "suite": visible(result.suite),
        "version": visible(dict(result.conditions.versions).get("nhwc", "")),
        "headlines": said,
        "chart": chart_svg(_groups(result), " ".join(said)) if shown else "",
        "claimed": f"; a pale band is the range that the tutorial claims ({visible(where)})" if where else "",
        "tables": [
            {"mode": mode.capitalize(), "rows": [row_text(row) for row in result.of_mode(mode)]}
            for mode in result.modes
        ],
        "reasons": unstable_reasons(result),
        "samples": SAMPLES,
        "remarks": remarks(result),
        "facts": facts(result),
    }


def _groups(result: SuiteResult) -> list[Group]:
    return [
        Group(mode.capitalize(), tuple(_bar(row) for row in result.of_mode(mode) if row.benchmark or row.failure))
        for mode in result.modes
    ]


def _bar(row: SuiteRow) -> Bar:
    text = row_text(row)
    claim = None if row.claim is None else (row.claim.low, row.claim.high)
    verdict = "" if row.verdict is None else row.verdict.value
    return Bar(text.model, row.ratio, verdict, "failed" if text.failure else "no ratio", claim)
