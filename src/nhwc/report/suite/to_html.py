"""A suite as one HTML page with one chart of all ratios, and the chart alone as a picture for a README."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nhwc.report.bench.chart import Bar, Group, Heading, chart_svg
from nhwc.report.formatting import plural, visible
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
    return str(chart_svg(_groups(result), " ".join(headlines(result)), _heading(result))) + "\n"


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


def _heading(result: SuiteResult) -> Heading:
    where, claimed = result.conditions, claimed_for(result)
    measured = [row for row in result.rows if row.benchmark is not None]
    pairs = {(row.variant.name, row.benchmark.baseline) for row in measured if row.benchmark and row.variant}
    names = [visible(name.replace("_", " ")) for name in next(iter(sorted(pairs)), ("channels last", "contiguous"))]
    batches = sorted({row.benchmark.batch for row in measured if row.benchmark and row.benchmark.batch})
    batch = f"batch {' to '.join(str(each) for each in dict.fromkeys((batches[0], batches[-1])))}" if batches else ""
    torch = dict(where.versions).get("torch", "")
    place = (where.device, where.processor, plural(where.threads, "thread"))
    setup = (f"torch {torch}" if torch else "", batch, " and ".join(result.modes), _days(result))
    return Heading(
        f"{names[0].capitalize()} over {names[1]}: how many times as fast",
        tuple(visible(", ".join(filter(None, line))) for line in (place, setup)),
        f"the range that the tutorial claims ({visible(claimed)})" if claimed else "",
    )


def _days(result: SuiteResult) -> str:
    days = sorted({row.benchmark.started[:10] for row in result.rows if row.benchmark is not None})
    return " to ".join(dict.fromkeys((days[0], days[-1]))) if days else ""


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
