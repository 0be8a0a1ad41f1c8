"""One arena for all values of a plan: buffers whose lives do not overlap share memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nhwc.inference.layout import Buffer
from nhwc.inference.native import ALIGNMENT_BYTES


@dataclass(frozen=True)
class Life:
    """The first and the last item that touch a buffer."""

    first: int
    last: int

    def meets(self, other: Life) -> bool:
        return self.first <= other.last and other.first <= self.last


def rounded(count_bytes: int) -> int:
    """Bytes rounded up to the alignment."""
    return -(-count_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def planned(lives: Mapping[Buffer, Life]) -> int:
    """Give every buffer its offset; the arena's size in bytes.

    The largest first, each into the smallest gap among those that live at the same time.
    """
    done: list[Buffer] = []
    for buffer in sorted(lives, key=lambda each: (-each.size, lives[each].first)):
        buffer.offset = _gap(buffer, [each for each in done if lives[each].meets(lives[buffer])])
        done.append(buffer)
    return max((each.offset + rounded(4 * each.size) for each in done), default=0)


def _gap(buffer: Buffer, others: list[Buffer]) -> int:
    size, best, found, end = rounded(4 * buffer.size), -1, -1, 0
    for other in sorted(others, key=lambda each: each.offset):
        gap = other.offset - end
        if gap >= size and (best < 0 or gap < best):
            best, found = gap, end
        end = max(end, other.offset + rounded(4 * other.size))
    return end if found < 0 else found


def least_possible(lives: Mapping[Buffer, Life]) -> int:
    """The most bytes that live at one moment: no arena can be smaller."""
    moments = {life.first for life in lives.values()}
    return max(
        (sum(rounded(4 * b.size) for b, life in lives.items() if life.first <= at <= life.last) for at in moments),
        default=0,
    )
