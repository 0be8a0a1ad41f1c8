"""What differs between two plans, in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nhwc.plan import why_stale
from nhwc.report.formatting import module_text, ms_text, visible
from nhwc.report.plan.summary import place_text, words

if TYPE_CHECKING:
    from nhwc.plan import Move, Plan


def differences(old: Plan, new: Plan) -> tuple[str, ...]:
    """One sentence for each difference that matters to the model, none where both plans do the same.

    First what ``old`` was made for and ``new`` was not, then modules, then moves, then the predicted time.
    """
    reason = why_stale(
        old,
        environment=new.environment,
        training=new.training,
        amp=new.amp,
        inputs=new.inputs,
        keywords=new.keywords,
        tree=new.tree,
    )
    found = [f"the plans are for different things: of the first, {reason}"] if reason else []
    found += _of_modules(old, new)
    here, there = _by_place(old), _by_place(new)
    found += [f"converts no longer to {_text(here[key])}" for key in here if key not in there]
    found += [f"converts to {_text(there[key])}" for key in there if key not in here]
    if old.kernels != new.kernels:
        found.append(f"kernels: {', '.join(old.kernels) or 'none'} before, {', '.join(new.kernels) or 'none'} now")
    if found and old.predicted.planned != new.predicted.planned:
        found.append(f"predicted: {ms_text(old.predicted.planned)} before, {ms_text(new.predicted.planned)} now")
    return tuple(found)


def _of_modules(old: Plan, new: Plan) -> list[str]:
    before = {placement.module: placement.format for placement in old.placements}
    after = {placement.module: placement.format for placement in new.placements}
    found = []
    for module in dict.fromkeys([*before, *after]):
        name = visible(module_text(module))
        if module not in after:
            found.append(f"{name}: no longer planned")
        elif module not in before:
            found.append(f"{name}: {words(after[module])}, not planned before")
        elif before[module] != after[module]:
            found.append(f"{name}: {words(before[module])} before, {words(after[module])} now")
    return found


def _by_place(plan: Plan) -> dict[tuple[str, str, str], Move]:
    return {(move.where, move.module, move.format): move for move in plan.moves}


def _text(move: Move) -> str:
    return f"{words(move.format)} {place_text(move)}"
