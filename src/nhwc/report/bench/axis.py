"""A logarithmic axis for ratios: 2 and 1/2 lie equally far from 1, which is always on it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

_MOST_TICKS = 8
_STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5)
_WIDEST_LINEAR = 4.0
_DECADES = ((1.0, 1.5, 2.0, 3.0, 5.0, 7.0), (1.0, 2.0, 5.0), (1.0,))
_LEAST_ROOM = 1.04
_FARTHEST = 1e6


@dataclass(frozen=True)
class LogAxis:
    """From ``low`` to ``high``, with ticks between them."""

    low: float
    high: float
    ticks: tuple[float, ...]

    def position(self, value: float) -> float:
        """Where a ratio lies, from 0 at the left end to 1 at the right one; beyond the ends, at them.

        >>> axis_for([0.5, 2.0]).position(1.0)
        0.5
        """
        if not value > 0:
            return 0.0
        share = math.log(min(value, _FARTHEST) / self.low) / math.log(self.high / self.low)
        return min(1.0, max(0.0, share))


def axis_for(values: Iterable[float]) -> LogAxis:
    """An axis that holds 1 and every value that is positive and finite, with a little room around them."""
    usable = [value for value in values if 1 / _FARTHEST < value < _FARTHEST]
    room = max(_LEAST_ROOM, (max([1.0, *usable]) / min([1.0, *usable])) ** 0.06)
    low, high = min([1.0, *usable]) / room, max([1.0, *usable]) * room
    return LogAxis(low, high, _ticks(low, high))


def tick_text(tick: float) -> str:
    """
    >>> tick_text(1.0), tick_text(0.25), tick_text(1.5)
    ('1', '0.25', '1.5')
    """
    return f"{tick:g}"


def _ticks(low: float, high: float) -> tuple[float, ...]:
    if high / low <= _WIDEST_LINEAR:
        for step in _STEPS:
            ticks = _multiples(low, high, step)
            if len(ticks) <= _MOST_TICKS:
                return ticks
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = ()
    for digits in _DECADES:
        places = (float(f"{digit:g}e{power}") for power in powers for digit in digits)
        ticks = tuple(tick for tick in places if low <= tick <= high)
        if len(ticks) <= _MOST_TICKS:
            break
    return ticks


def _multiples(low: float, high: float, step: float) -> tuple[float, ...]:
    """Multiples of ``step``, and 1, on the axis."""
    found = {round(index * step, 4) for index in range(math.ceil(low / step), math.floor(high / step) + 1)}
    return tuple(sorted(found | {1.0}))
