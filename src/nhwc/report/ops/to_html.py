"""The survey as one HTML page that loads nothing: a table to search, sort and narrow down."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Any

from nhwc.operators import Handling
from nhwc.report.formatting import plural, visible
from nhwc.report.ops.rows import (
    dtypes_text,
    handling_text,
    lines,
    short_dtype,
    speed_text,
    timed_dtypes,
    values_text,
    why_text,
)
from nhwc.report.ops.summary import headline, sentences, where
from nhwc.report.registry import report_format
from nhwc.report.templating import fill, ours, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nhwc.operators import Pass, Speed, Survey
    from nhwc.report.ops.rows import Line

_MEANINGS = (
    (
        Handling.KEEPS,
        "every result has canonical channels-last strides, and nothing more is copied than for contiguous",
    ),
    (Handling.VIEW, "the result is a view of the input, or expanded: no bytes move"),
    (Handling.NO_FORMAT, "no result has a format to keep: another rank, one channel, one pixel"),
    (Handling.COPIES, "nothing is lost, but more is copied between formats inside the operator than for contiguous"),
    (Handling.SOMETIMES, "some results keep the format, some lose it"),
    (Handling.LOSES, "results are not in channels last"),
    (Handling.REFUSES, "it raises, and does not for contiguous inputs"),
)


@report_format("html", "ops")
def render_html(survey: Survey) -> str:
    """One self-contained page with every line of the table."""
    script = text("ops.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return fill(
        "ops_page.j2",
        _view(survey),
        style=ours("parts.css", "page.css", "ops.css"),
        script=ours("ops.js"),
        script_hash=f"sha256-{digest}",
    )


def _view(survey: Survey) -> dict[str, Any]:
    shown = lines(survey.rows)
    timed = timed_dtypes(survey)
    return {
        "headline": headline(survey),
        "sentences": [f"{each[:1].upper()}{each[1:]}." for each in sentences(survey)],
        "torch": visible(survey.torch),
        "where": visible(where(survey)),
        "started": visible(survey.started[:10]),
        "version": visible(dict(survey.conditions.versions).get("nhwc", "")),
        "timed": timed,
        "dtypes": [visible(short_dtype(each)) for each in survey.dtypes],
        "modes": [*survey.modes] if len(survey.modes) > 1 else [],
        "kernels": sorted({name for row in survey.rows for name in row.kernels}),
        "rows": [_row(line, survey, names_dtypes=len(timed) > 1) for line in shown],
        "count": plural(len(shown), "line"),
        "meanings": [(handling.value, _class(handling), meaning) for handling, meaning in _MEANINGS],
        "failures": [(visible(each.name), visible(each.reason)) for each in survey.failures],
        "notes": [f"{each[:1].upper()}{each[1:]}." for each in map(visible, survey.notes)],
    }


def _row(line: Line, survey: Survey, *, names_dtypes: bool) -> dict[str, Any]:
    row = line.first
    return {
        "name": visible(row.name),
        "group": row.group,
        "dims": f"{row.dims}-D",
        "dtypes": line.dtypes,
        "dtypes_text": dtypes_text(line, survey),
        "mode": row.mode,
        "kernels": [*map(visible, row.kernels)],
        "passes": [_pass(each) for each in (row.forward, row.backward, row.expanded)],
        "judged": values_text(row),
        "wrong": row.is_wrong,
        "speeds": [
            _speeds(line.speeds(what), names_dtypes=names_dtypes) for what in ("forward", "forward and backward")
        ],
        "problem": any(each.is_problem for each in line.rows),
        "why": why_text(row),
    }


def _pass(found: Pass | None) -> dict[str, Any]:
    if found is None:
        return {"text": handling_text(found), "rank": -1, "look": "none"}
    return {"text": found.handling.value, "rank": found.handling.rank, "look": _class(found.handling)}


def _class(handling: Handling) -> str:
    if handling in (Handling.VIEW, Handling.NO_FORMAT):
        return "none"
    if not handling.is_problem:
        return "good"
    return "some" if handling in (Handling.COPIES, Handling.SOMETIMES) else "bad"


def _speeds(found: Sequence[tuple[str, Speed]], *, names_dtypes: bool) -> dict[str, Any]:
    """A cell: every dtype that was measured, the first of which it is sorted by."""
    return {
        "rank": f"{found[0][1].ratio.estimate:.4f}" if found else "",
        "every": [
            {
                "dtype": dtype if names_dtypes else "",
                "text": speed_text(speed),
                "look": speed.verdict.value.replace(" ", "-"),
            }
            for dtype, speed in found
        ],
    }
