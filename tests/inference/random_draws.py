"""What random graphs are drawn from: a register of functions, each of which draws one operation on a value."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

#: Of a graph, the source of randomness and a value: a function and the numbers of further values that it reads. None
#: where there is none for such a value. The graph is a RandomGraph: keep(module) and other(r, fits) are for draws.
Draw = Callable[[Any, random.Random, Any], "tuple[Callable[..., Any], Sequence[int]] | None"]
DRAWS: list[tuple[int, Draw]] = []


def draw(weight: int) -> Callable[[Draw], Draw]:
    """Register a draw that comes as often as its weight says."""

    def keep(function: Draw) -> Draw:
        DRAWS.append((weight, function))
        return function

    return keep


def drawn_sizes(r: random.Random, spatial: int, choices: Sequence[int]) -> Any:
    """One number for all spatial dimensions, or one for each."""
    drawn = tuple(r.choice(choices) for _ in range(spatial))
    return drawn[0] if r.random() < 0.7 else drawn
