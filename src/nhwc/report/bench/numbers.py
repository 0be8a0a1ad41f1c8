"""Ratios, intervals and rates as text: the one place where their digits are chosen."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from nhwc.report.formatting import NOTHING

if TYPE_CHECKING:
    from nhwc.timing import Ratio

_FINE = 0.005


def ratio_text(ratio: Ratio | None) -> str:
    """The estimate, with a third decimal where two would hide what the interval says.

    >>> from nhwc.timing import Ratio
    >>> ratio_text(Ratio(1.314, 1.28, 1.34, 30)), ratio_text(Ratio(1.0021, 1.0009, 1.003, 900)), ratio_text(None)
    ('1.31', '1.002', '–')
    """
    return NOTHING if ratio is None else _number(ratio.estimate, _places(ratio))


def interval_text(ratio: Ratio | None) -> str:
    """The bounds of the interval; where an end is open, there were too few rounds for one.

    >>> from nhwc.timing import Ratio
    >>> interval_text(Ratio(1.314, 1.28, 1.341, 30))
    '1.28 to 1.34'
    >>> interval_text(Ratio(1.0141, 0.9981, 1.0303, 30))
    '0.998 to 1.030'
    """
    if ratio is None:
        return NOTHING
    if not math.isfinite(ratio.high):
        return "too few rounds"
    places = _places(ratio)
    return f"{_number(ratio.low, places)} to {_number(ratio.high, places)}"


def confidence_text(confidence: float) -> str:
    """
    >>> confidence_text(0.95)
    '95 % interval'
    """
    return f"{100 * confidence:g} % interval"


def rate_text(per_s: float | None) -> str:
    """Samples per second with three digits.

    >>> rate_text(8.123), rate_text(1234.5), rate_text(None)
    ('8.12', '1,234', '–')
    """
    if per_s is None or not math.isfinite(per_s):
        return NOTHING
    places = max(0, 2 - math.floor(math.log10(per_s))) if per_s > 0 else 0
    return f"{per_s:,.{min(places, 3)}f}"


def share_text(share: float) -> str:
    """A half width or a margin as percent, with two digits at most.

    >>> share_text(0.02), share_text(0.0153)
    ('2 %', '1.5 %')
    """
    return f"{100 * share:.2g} %"


def seconds_text(seconds: float) -> str:
    """
    >>> seconds_text(28.44), seconds_text(0.31), seconds_text(251.0)
    ('28 s', '0.3 s', '4 min 11 s')
    """
    if seconds >= 120:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min {rest} s"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def _places(ratio: Ratio) -> int:
    """Two decimals, or three where two would hide the width, or on which side of 1 a bound lies."""
    near_one = any(abs(bound - 1.0) < _FINE for bound in (ratio.low, ratio.high))
    return 3 if near_one or ratio.half_width < _FINE else 2


def _number(value: float, places: int) -> str:
    if not math.isfinite(value):
        return NOTHING
    return f"{value:.{places if value < 10 else 1}f}"
