"""A plan in one sentence, and the words that its pages share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nhwc.plan import BEFORE, FORMATS
from nhwc.report.formatting import module_text, ms_text, plural, visible

if TYPE_CHECKING:
    from nhwc.plan import Move, Plan


def words(name: str) -> str:
    """A format as a reader says it."""
    return name.replace("_", " ")


def headline(plan: Plan) -> str:
    """The first sentence of every page.

    >>> from nhwc.model import Environment
    >>> from nhwc.plan import Plan, Predicted
    >>> where = Environment("2.14", "3.11", "cpu", "x86", 2, "0.1")
    >>> headline(Plan("net", where, False, "", (), (), "0", (), (), (), Predicted(2.0, 1.0, 1.0)))
    'No module of it has a memory format to choose.'
    """
    if not plan.placements:
        return "No module of it has a memory format to choose."
    times = plan.predicted
    counts = {name: sum(each.format == name for each in plan.placements) for name in FORMATS}
    said = " and ".join(f"{plural(count, 'module')} in {words(name)}" for name, count in counts.items() if count)
    against = f"contiguous {ms_text(times.contiguous)}, channels last {ms_text(times.channels_last)}"
    made = f"with {plural(sum(move.calls for move in plan.moves), 'conversion')}"
    return f"{said}, {made}: {ms_text(times.planned)} predicted a step ({against})."


def place_text(move: Move) -> str:
    """Where a move is made."""
    if move.where == BEFORE and not move.module:
        return "inputs of the model"
    return f"{move.where} {visible(module_text(move.module))}"
