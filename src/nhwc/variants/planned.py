"""A plan as a part of variants: a format for each module, and conversions at their boundaries.

A spec is text, and a plan is not: who measures or verifies one offers it under a name for that time.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence

from nhwc.errors import RegistryError
from nhwc.optimization import arrange, arrangement_of
from nhwc.plan import Plan
from nhwc.variants.registry import Kind, part
from nhwc.variants.setup import Setup

PLANNED = "planned"
_offered: dict[str, tuple[Plan, ...]] = {}
_numbers = itertools.count(1)


@contextlib.contextmanager
def offered(plans: Sequence[Plan]) -> Iterator[str]:
    """The variant that is made of these plans, known inside the block."""
    name = f"plan{next(_numbers)}"
    _offered[name] = tuple(plans)
    try:
        yield f"{PLANNED}:{name}"
    finally:
        del _offered[name]


def _known(names: tuple[str, ...]) -> None:
    if len(names) != 1 or names[0] not in _offered:
        raise RegistryError(f"no plan is offered as {':'.join(names)!r}; pass the plan to nhwc.optimize")


@part(PLANNED, Kind.FORMAT, "a format for each module, as a plan of nhwc.optimize says", check=_known)
def planned(setup: Setup, *names: str) -> None:
    """Formats, conversions and kernels of a plan."""
    _known(names)
    arrange(
        setup.model, arrangement_of(PLANNED, _offered[names[0]]), [] if setup.optimizer is None else [setup.optimizer]
    )
