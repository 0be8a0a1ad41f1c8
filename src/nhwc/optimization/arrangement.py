"""What can be put on a model, written as a variant is: "channels_last", "channels_last+kernels:pad", "planned"."""

from __future__ import annotations

from dataclasses import dataclass

from nhwc.plan import Plan
from nhwc.strides import CHANNELS_LAST, CONTIGUOUS

#: Candidates that are called in the model's place.
ENGINE, COMPILE = "engine", "compile"
PLANNED, KERNELS = "planned", "kernels"


@dataclass(frozen=True)
class Arrangement:
    """A candidate taken apart.

    format: of all weights and inputs; "" where ``plan`` has one for each module. kernels: names, empty for all; None
    for none. compiled: whether torch.compile takes it. is_engine: nhwc.engine stands in the model's place.
    """

    format: str
    plan: Plan | None = None
    kernels: tuple[str, ...] | None = None
    compiled: bool = False
    is_engine: bool = False


def arrangement_of(spec: str, plan: Plan | None = None) -> Arrangement:
    """The arrangement of a candidate; ``plan`` is what "planned" stands for.

    Raises ValueError for what is no candidate.

    >>> arrangement_of("channels_last+kernels:pad:cat").kernels
    ('pad', 'cat')
    """
    first, *rest = [part.strip() for part in spec.split("+")]
    if first == ENGINE and not rest:
        return Arrangement(CHANNELS_LAST, is_engine=True)
    if first not in (CONTIGUOUS, CHANNELS_LAST, PLANNED) or (first == PLANNED and plan is None):
        raise ValueError(f"{spec!r} is no arrangement of a model")
    kernels: tuple[str, ...] | None = None
    if first == PLANNED and plan is not None and plan.kernels:
        kernels = plan.kernels
    for part in rest:
        name, *values = part.split(":")
        if name == KERNELS:
            kernels = tuple(values)
        elif part != COMPILE:
            raise ValueError(f"{spec!r}: {part!r} is no part that can be put on a model")
    return Arrangement("" if first == PLANNED else first, plan if first == PLANNED else None, kernels, COMPILE in rest)
