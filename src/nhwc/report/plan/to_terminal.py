"""A plan on a terminal: the first sentence, a table of modules, the conversions, and what it was made for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from nhwc.report.formatting import bytes_text, column, module_text, ms_places, ms_text, shape_text, visible
from nhwc.report.plan.summary import headline, place_text, words
from nhwc.report.registry import report_format
from nhwc.report.terminal import Paper, as_string

if TYPE_CHECKING:
    from rich.console import Console

    from nhwc.plan import Move, Plan, PlanInput

#: Columns, of which the first ``_LEFT`` and the last are words.
_HEADS, _LEFT = ("module", "format", "contiguous", "channels last", "why"), 2


def print_plan(plan: Plan, console: Console) -> None:
    """Print a plan, as wide as the console (120 columns at most), in ASCII where it knows no more."""
    _Page(plan, console).print()


@report_format("text", "plan")
def render_text(plan: Plan, width: int = 100, color: bool = False) -> str:
    """The terminal page as a string, the same on every machine; ``color`` adds ANSI escapes."""
    return as_string(lambda console: print_plan(plan, console), width, color)


class _Page(Paper):
    """Writes one plan to one console."""

    def __init__(self, plan: Plan, console: Console) -> None:
        super().__init__(console)
        self.plan = plan

    def print(self) -> None:
        plan = self.plan
        self.line(headline(plan), "bold")
        if plan.placements:
            self.gap()
            self.table()
            self.line("ms of a module's own operators in each format; ~ estimated from bytes, not measured", "dim")
        self.section("Conversions", [_move_text(move) for move in plan.moves if move.calls])
        self.gap()
        for label, text in self.facts():
            self.row(f"{label:<8}", text, "dim")

    def table(self) -> None:
        plan = self.plan
        table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
        for place, name in enumerate(_HEADS):
            is_words = place < _LEFT or place == len(_HEADS) - 1
            table.add_column(
                self.text(name, "bold"),
                justify="left" if is_words else "right",
                overflow="fold",
                no_wrap=0 < place < len(_HEADS) - 1,
            )
        places = ms_places(plan.predicted.planned)
        contiguous, _ = column([each.ms.contiguous for each in plan.placements], places)
        channels_last, _ = column([each.ms.channels_last for each in plan.placements], places)
        for each, *times in zip(plan.placements, contiguous, channels_last, strict=True):
            mark = "~" if each.estimated else ""
            cells = (visible(module_text(each.module)), words(each.format), *(f"{mark}{ms}" for ms in times))
            table.add_row(*[self.text(cell) for cell in (*cells, visible(each.why))])
        self.console.print(table, width=self.width)

    def facts(self) -> list[tuple[str, str]]:
        plan, where = self.plan, self.plan.environment
        step = "training step" if plan.training else "inference"
        mode = f"{step} under autocast {plan.amp}" if plan.amp else step
        inputs = ", ".join(_input_text(each) for each in plan.inputs)
        facts = [("model", f"{visible(plan.target)}, {mode}"), ("inputs", inputs or "none")]
        if plan.kernels:
            facts.append(("kernels", ", ".join(plan.kernels)))
        machine = f"{where.device}, {where.processor}, {where.threads} threads, torch {where.torch}"
        return [*facts, ("machine", visible(machine))]


def _move_text(move: Move) -> str:
    return f"{place_text(move)}: to {words(move.format)}, {bytes_text(move.nbytes)}, {ms_text(move.ms)}"


def _input_text(each: PlanInput) -> str:
    return f"{visible(each.name)} {shape_text(each.shape)} {each.dtype} on {each.device}"
