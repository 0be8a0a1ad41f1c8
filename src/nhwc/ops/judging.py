"""Whether the values and gradients of runs are right, and what is wrong where they are not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from nhwc.operators import Fault, Truth
from nhwc.ops.attempt import DIRECTIONS, Direction, attempt
from nhwc.ops.case import Case, in_dtype
from nhwc.ops.passes import shapes_text
from nhwc.ops.runs import Run, unmarked
from nhwc.ops.values import Agreement, agreement, worst

#: What a direction writes, for people.
_WRITTEN = {"forward": "output", "backward": "gradient", "expanded": "gradient of an expanded one"}

Exact = Mapping[str, list[torch.Tensor | None]]


def judged(run: Run) -> tuple[Agreement, list[Fault]]:
    """Values and gradients of a run against float64, or contiguous ones where it does not run in that.

    With what is wrong, in the order of the directions.
    """
    if run.last["forward"].error:
        return Agreement(Truth.UNCOMPARED), []
    exact = _reference(run)
    found = {
        name: agreement(run.contiguous[name].tensors, run.last[name].tensors, exact.get(name) if exact else None)
        for name in DIRECTIONS
        if name in run.contiguous and name in run.last and not (run.contiguous[name].error or run.last[name].error)
    }
    together = worst(list(found.values()))
    if together.truth == Truth.WRONG and run.contiguous["forward"].drew:
        return Agreement(Truth.RANDOM), []
    shapes = shapes_text(run.case)
    return together, [
        Fault(_WRITTEN[name], shapes, "", each.error, each.contiguous_error, each.reference)
        for name, each in found.items()
        if each.truth == Truth.WRONG
    ]


def edge_judged(case: Case) -> tuple[Truth, list[Fault]] | None:
    """Whether a case of another shape agrees, and what does not; None where contiguous inputs are refused too."""
    contiguous = attempt(case, channels_last=False, mark=unmarked)
    if contiguous["forward"].error:
        return None
    last = attempt(case, channels_last=True, mark=unmarked)
    raised = [
        Fault(_WRITTEN[name], shapes_text(case), raised=direction.error)
        for name, direction in last.items()
        if direction.error and name in contiguous and not contiguous[name].error
    ]
    if raised:
        return Truth.WRONG, raised
    verdict, faults = judged(Run(case, contiguous, last))
    return verdict.truth, faults


def worst_of_each(faults: Sequence[Fault]) -> tuple[Fault, ...]:
    """Of the faults of all samples the one with the largest error in each direction."""
    ordered = sorted(faults, key=lambda fault: fault.error or 0.0)
    largest = {fault.what: fault for fault in ordered}
    return tuple(largest[what] for what in _WRITTEN.values() if what in largest)


def _reference(run: Run) -> Exact | None:
    """Every direction's tensors in float64; None where the operator does not run in it."""
    wide: Mapping[str, Direction] = run.contiguous
    if any(tensor.is_floating_point() and tensor.dtype != torch.float64 for tensor in run.case.tensors):
        in_float64 = run.case.changed(lambda tensor: in_dtype(tensor, torch.float64))
        wide = attempt(in_float64, channels_last=False, mark=unmarked)
    if wide["forward"].error:
        return None
    return {name: direction.tensors for name, direction in wide.items() if not direction.error}
