"""A plan on the page's strip: the format of each layer under it, and where it is converted."""

from __future__ import annotations

import re
from dataclasses import replace

from report import sample
from report.plan_sample import plan

from nhwc.plan import Plan
from nhwc.report import render
from nhwc.report.planned_strip import PlanMark, plan_legend, plan_marks


def planned_resnet() -> Plan:
    """The made-up plan, on two modules of the sample's."""
    first, second = list(dict.fromkeys(call.module for call in sample.clean_resnet().trace.calls))[:2]
    made = plan()
    placements = (
        replace(made.placements[0], module=first),
        replace(made.placements[1], module=second),
    )
    moves = (
        made.moves[0],
        replace(made.moves[1], module=first),
        replace(made.moves[2], module=second),
        replace(made.moves[2], module="unplaced"),
    )
    return replace(made, placements=placements, moves=moves)


def test_marks_tell_the_format_and_the_conversions_of_each_module() -> None:
    found = planned_resnet()
    first, second = (each.module for each in found.placements)
    assert plan_marks(found) == {
        first: PlanMark("L", "planned in channels last, converted to contiguous after it", after=True),
        second: PlanMark("C", "planned in contiguous, converted to contiguous before it", before=True),
        "unplaced": PlanMark("", "converted to contiguous before it", before=True),
    }


def test_the_legend_has_what_the_plan_uses() -> None:
    made = replace(planned_resnet(), moves=plan().moves[:1])
    legend = plan_legend(made, plan_marks(made))
    assert legend["formats"] == [("C", "planned: contiguous"), ("L", "planned: channels last")]
    assert legend["converts"] is False
    only = replace(made, placements=made.placements[:1])
    assert plan_legend(only, plan_marks(only))["formats"] == [("L", "planned: channels last")]


def test_the_page_shows_it_under_the_layers() -> None:
    report, made = sample.clean_resnet(), planned_resnet()
    page = render(report, "html", plan=made)
    assert re.findall(r'<span class="plan ([LC][ a-z]*)" role="img" aria-label="([^"]*)"', page)[:2] == [
        ("L after", "planned in channels last, converted to contiguous after it"),
        ("C before", "planned in contiguous, converted to contiguous before it"),
    ]
    assert "The plan, under the squares: 1 module in contiguous and 1 module in channels last" in page
    assert "dark edge" in page
    assert 'class="plan' not in render(report, "html")
