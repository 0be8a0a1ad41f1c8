"""The chart of ratios as SVG: a logarithmic axis, a line at 1, a bar for each interval, a band for what is claimed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from nhwc.report.bench.axis import axis_for, tick_text
from nhwc.report.bench.numbers import interval_text, ratio_text
from nhwc.report.formatting import shorten
from nhwc.report.templating import fill, text
from nhwc.timing import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nhwc.timing import Ratio

WIDTH = 860
_LEFT, _RIGHT = 232, 612
_ROW, _TITLE, _TICKS, _MARGIN = 26, 40, 30, 14
_LONGEST_LABEL = 29
_EDGE, _TITLE_LINE, _LINE, _KEY = 20, 34, 20, 200
_LONGEST_TITLE, _LONGEST_LINE = 90, 120
_KEYS = (("faster", "faster, with its interval"), ("slower", "slower"), ("even", "cannot tell, or unstable"))
_STYLES = {Verdict.FASTER.value: "faster", Verdict.SLOWER.value: "slower"}
_COLOURS = re.compile(r"(--[a-z-]+): light-dark\((#\w+), (#\w+)\)")


@dataclass(frozen=True)
class Bar:
    """One row. verdict: its word; note: what stands in place of an interval; claim: a range to set it against."""

    label: str
    bounds: Ratio | None
    verdict: str = ""
    note: str = ""
    claim: tuple[float, float] | None = None


@dataclass(frozen=True)
class Group:
    """Rows under a title, empty for none."""

    title: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class Heading:
    """What a chart that no page surrounds says above its rows. claimed: what the pale band is, empty for none."""

    title: str
    lines: tuple[str, ...]
    claimed: str = ""


def chart_svg(groups: Sequence[Group], about: str, heading: Heading | None = None) -> Markup:
    """The SVG element; with a heading it is a file that stands for itself, with colours and a ground of its own.

    about: what the chart shows, for those who do not see it.
    """
    geometry = _geometry(groups)
    view = {"about": about, "heading": None, "style": "", **geometry}
    if heading is not None:
        view |= _headed(heading, geometry)
    return Markup(fill("chart.j2", view).strip())  # noqa: S704 escaped by the template


def _headed(heading: Heading, geometry: dict[str, Any]) -> dict[str, Any]:
    """The chart moved down and inwards, with lines, a legend and the axis's label above it."""
    lines = [
        {"y": _TITLE_LINE + _LINE * (place + 1), "text": shorten(line, _LONGEST_LINE)}
        for place, line in enumerate(heading.lines)
    ]
    legend = _TITLE_LINE + _LINE * len(lines) + 30
    claimed = legend + 24 if heading.claimed else legend
    axis = claimed + 32
    return {
        "heading": {
            "title": shorten(heading.title, _LONGEST_TITLE),
            "title_y": _TITLE_LINE,
            "lines": lines,
            "marks": [
                {"x": _EDGE + _KEY * place, "y": legend, "style": style, "text": text_}
                for place, (style, text_) in enumerate(_KEYS)
            ],
            "claimed": {"y": claimed, "text": shorten(heading.claimed, _LONGEST_LINE)} if heading.claimed else None,
            "axis": {"x": _EDGE + (_LEFT + _RIGHT) / 2, "y": axis},
        },
        "edge": _EDGE,
        "down": axis + 6,
        "width": geometry["width"] + 2 * _EDGE,
        "height": geometry["height"] + axis + 6,
        "style": Markup(_own_style()),  # noqa: S704 our own file
    }


def _geometry(groups: Sequence[Group]) -> dict[str, Any]:
    bars = [bar for group in groups for bar in group.bars]
    axis = axis_for(
        [value for bar in bars if bar.bounds for value in (bar.bounds.low, bar.bounds.estimate, bar.bounds.high)]
        + [value for bar in bars if bar.claim for value in bar.claim]
    )

    def x(value: float) -> float:
        return round(_LEFT + (_RIGHT - _LEFT) * axis.position(value), 1)

    titles, rows, y = [], [], _TICKS
    for group in groups:
        if group.title:
            titles.append({"y": y + 27, "text": group.title})
            y += _TITLE
        for bar in group.bars:
            rows.append(_bar_view(bar, y, x))
            y += _ROW
    ticks = [{"x": x(tick), "text": tick_text(tick), "one": tick == 1.0} for tick in axis.ticks]
    return {
        "width": WIDTH,
        "height": y + _MARGIN,
        "top": _TICKS - 6,
        "bottom": y + 4,
        "ticks": ticks,
        "titles": titles,
        "rows": rows,
    }


def _bar_view(bar: Bar, y: int, x: Any) -> dict[str, Any]:
    view: dict[str, Any] = {
        "y": y + _ROW / 2,
        "label": shorten(bar.label, _LONGEST_LABEL),
        "whole": bar.label,
        "text": _text(bar),
        "style": _STYLES.get(bar.verdict, "even"),
        "interval": None,
        "claim": None,
    }
    if bar.claim is not None:
        low, high = map(x, bar.claim)
        view["claim"] = {"x": low, "width": round(max(1.0, high - low), 1)}
    if bar.bounds is not None:
        low, high = x(bar.bounds.low), x(bar.bounds.high)
        view["interval"] = {
            "x": low,
            "width": round(max(1.0, high - low), 1),
            "end": high,
            "at": x(bar.bounds.estimate),
        }
    return view


def _text(bar: Bar) -> str:
    if bar.bounds is None:
        return bar.note
    unstable = ", unstable" if bar.verdict == Verdict.UNSTABLE else ""
    return f"{ratio_text(bar.bounds)}  ({interval_text(bar.bounds)}){unstable}"


def _own_style() -> str:
    """The page's colours for a picture that no page surrounds, by what the reader's system prefers."""
    colours = _COLOURS.findall(text("parts.css"))
    light, dark = ("".join(f"{row[0]}:{row[place]};" for row in colours) for place in (1, 2))
    return f":root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}{text('chart.css')}"
