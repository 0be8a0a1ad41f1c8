"""What can be put on a model, written as a variant is: "channels_last", "channels_last+kernels:pad", "planned"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nhwc.plan import Plan
from nhwc.strides import CHANNELS_LAST, CONTIGUOUS

#: Candidates that are called in the model's place.
ENGINE, COMPILE = "engine", "compile"
PLANNED, KERNELS = "planned", "kernels"


@dataclass(frozen=True)
class Arrangement:
    """A candidate taken apart.

    format: of all weights and inputs; "" where ``plans`` have one for each module. plans: of several shapes of inputs;
    the first has the formats of weights, and is for all shapes that have none. kernels: names, empty for all; None
    for none. compiled: whether torch.compile takes it. is_engine: nhwc.engine stands in the model's place.
    """

    format: str
    plans: tuple[Plan, ...] = ()
    kernels: tuple[str, ...] | None = None
    compiled: bool = False
    is_engine: bool = False


def arrangement_of(spec: str, plans: Sequence[Plan] = ()) -> Arrangement:
    """The arrangement of a candidate; ``plans`` are what "planned" stands for.

    Raises ValueError for what is no candidate.

    >>> arrangement_of("channels_last+kernels:pad:cat").kernels
    ('pad', 'cat')
    """
    first, *rest = [part.strip() for part in spec.split("+")]
    if first == ENGINE and not rest:
        return Arrangement(CHANNELS_LAST, is_engine=True)
    if first not in (CONTIGUOUS, CHANNELS_LAST, PLANNED) or (first == PLANNED and not plans):
        raise ValueError(f"{spec!r} is no arrangement of a model")
    planned = tuple(plans) if first == PLANNED else ()
    kernels: tuple[str, ...] | None = next((plan.kernels for plan in planned if plan.kernels), None)
    for part in rest:
        name, *values = part.split(":")
        if name == KERNELS:
            kernels = tuple(values)
        elif part != COMPILE:
            raise ValueError(f"{spec!r}: {part!r} is no part that can be put on a model")
    return Arrangement("" if planned else first, planned, kernels, COMPILE in rest)
