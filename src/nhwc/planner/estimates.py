"""Times of calls that were not measured, from the bytes that they move."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from nhwc.model import Call

#: Bytes per second where nothing was measured that tells more: one core's copy, in round numbers.
_BYTES_PER_S = 5e9


def moved_bytes(call: Call) -> int:
    """Bytes of the operands and results of a call."""
    return sum(meta.nbytes for meta in (*call.inputs, *call.outputs))


def estimate_ms(call: Call, measured: Sequence[tuple[Call, float]]) -> float:
    """Milliseconds of ``call``, by its bytes and the usual time per byte of measured calls of the same operator, of all
    measured calls where there is none of it.

    >>> from nhwc.model import Phase
    >>> estimate_ms(Call(0, "aten.relu.default", "aten::relu", (), (), Phase.FORWARD, "", "", None), [])
    0.0
    """
    alike = _ms_per_byte([(other, ms) for other, ms in measured if other.operator == call.operator])
    found = alike or _ms_per_byte(measured)
    return moved_bytes(call) * (statistics.median(found) if found else 1e3 / _BYTES_PER_S)


def _ms_per_byte(measured: Sequence[tuple[Call, float]]) -> list[float]:
    return [ms / moved_bytes(call) for call, ms in measured if moved_bytes(call)]
