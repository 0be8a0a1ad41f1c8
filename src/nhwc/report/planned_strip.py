"""A plan on the strip: under each layer the format that the plan gives it, and where it converts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nhwc.plan import BEFORE, FORMATS
from nhwc.report.plan import headline
from nhwc.report.plan.summary import words
from nhwc.report.strip import CellFormat
from nhwc.strides import CONTIGUOUS

if TYPE_CHECKING:
    from nhwc.plan import Move, Plan


@dataclass(frozen=True)
class PlanMark:
    """What a plan says of one module. letter: of its format, "" for none. before, after: whether it converts there.

    text: the same in words, "" where it says nothing.
    """

    letter: str = ""
    text: str = ""
    before: bool = False
    after: bool = False


def plan_marks(plan: Plan) -> dict[str, PlanMark]:
    """The mark of every module that ``plan`` speaks of, by its path. Conversions of the model's inputs are nobody's."""
    formats = {each.module: each.format for each in plan.placements}
    moves = [each for each in plan.moves if each.where != BEFORE or each.module]
    return {
        path: _mark(formats.get(path), [each for each in moves if each.module == path])
        for path in {*formats, *(each.module for each in moves)}
    }


def plan_legend(plan: Plan, marks: dict[str, PlanMark]) -> dict[str, object]:
    """What the page says of a plan beside the strip."""
    used = [name for name in FORMATS if any(each.format == name for each in plan.placements)]
    return {
        "headline": headline(plan),
        "formats": [(_letter(name), f"planned: {words(name)}") for name in used],
        "converts": any(each.before or each.after for each in marks.values()),
    }


def _mark(planned: str | None, moves: list[Move]) -> PlanMark:
    told = [] if planned is None else [f"planned in {words(planned)}"]
    told += [f"converted to {words(each.format)} {each.where} it" for each in moves]
    before = any(each.where == BEFORE for each in moves)
    after = any(each.where != BEFORE for each in moves)
    return PlanMark("" if planned is None else _letter(planned), ", ".join(told), before, after)


def _letter(name: str) -> str:
    return (CellFormat.CONTIGUOUS if name == CONTIGUOUS else CellFormat.CHANNELS_LAST).value
