"""Makes an engine: one specialization for each set of shapes, their algorithms chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from nhwc.inference.choosing import Chooser, Progress
from nhwc.inference.measurements import Measurements, folder
from nhwc.inference.specialization import Specialization


@dataclass(frozen=True)
class Wishes:
    """exact: no algorithm that changes the rounding of single products. budget_s: for timing algorithms. threads: how
    many it is tuned for, by default as many as torch has. shapes: further example arguments. batches: further batches.
    """

    exact: bool = False
    budget_s: float = 15.0
    threads: int | None = None
    shapes: Sequence[Sequence[Any]] = ()
    batches: Sequence[int] = ()


def specializations(
    model: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    wishes: Wishes,
    chooser: Chooser,
    progress: Progress,
) -> list[Specialization]:
    """One for each set of shapes. Raises EngineError for a model that cannot be captured."""
    made = []
    for each in (args, *map(tuple, wishes.shapes)):
        one = Specialization(model, each, kwargs, chooser, wishes.exact, progress)
        one.ready(wishes.threads or torch.get_num_threads())
        made.append(one)
    chooser.measured.save()
    return made


def chooser_for(processor: str, budget_s: float) -> Chooser:
    """A chooser that knows what earlier engines measured on this machine."""
    return Chooser(Measurements(processor, folder()), budget_s)
