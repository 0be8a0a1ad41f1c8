"""Which forward call a node of the backward graph comes from.

A node takes a number when it is made, just before its operator is dispatched; numbers count up in each thread.

Private interfaces, read from torch 2.11 to 2.14: Node._sequence_nr and torch.autograd._get_sequence_nr.
"""

from __future__ import annotations

import re
import threading
from typing import Any

import torch

_get_next_number: Any = torch.autograd._get_sequence_nr  # type: ignore[attr-defined]


class ForwardTies:
    """Remembers for every node's number the call that it belongs to: ``note`` calls in their order, then ask ``of``."""

    def __init__(self) -> None:
        #: number → thread → the calls it may belong to with their operators, the likeliest first
        self._calls: dict[int, dict[int, list[tuple[int, str]]]] = {}
        #: thread → (next number, last call that was noted, its operator, whether it wrote an operand)
        self._last: dict[int, tuple[int, int, str, bool]] = {threading.get_ident(): (_get_next_number(), -1, "", False)}
        #: thread → candidates of numbers whose call may still have to be dispatched
        self._open: dict[int, list[list[tuple[int, str]]]] = {}

    def note(self, call: int, operator: str, *, makes_node: bool, mutates: bool) -> None:
        """Numbers taken since the last call belong to it (an in-place operator on a view makes nodes after itself), but
        for the newest, which is the own one of a call that makes a node or runs inside a function that made one. An
        operator that first saves a clone of what it overwrites takes its number before that clone: then the name of
        the node tells."""
        thread, end = threading.get_ident(), _get_next_number()
        start, previous, previous_operator, mutated = self._last.get(thread, (end - 1, -1, "", False))
        for candidates in self._open.pop(thread, []):
            candidates.append((call, operator))
        for number in range(start, end):
            own = number == end - 1 and (makes_node or not mutated)
            candidates = [(call, operator)]
            if not own and previous >= 0:
                candidates.insert(0, (previous, previous_operator))
                self._open.setdefault(thread, []).append(candidates)
            self._calls.setdefault(number, {})[thread] = candidates
        self._last[thread] = (end, call, operator, mutates)

    def of(self, node: Any) -> int | None:
        """The call that made ``node``, None for a node that is older than the recording.

        Threads count alike: of several calls the one whose operator the node is named after, else the likeliest one of
        this thread.
        """
        by_thread = self._calls.get(node._sequence_nr(), {})
        found = [candidate for candidates in by_thread.values() for candidate in candidates]
        kin = {call for call, operator in found if _plain(operator) == _plain(node.name())}
        if len(kin) == 1:
            return kin.pop()
        if len(by_thread) > 1:
            found = by_thread.get(threading.get_ident(), [])
        return found[0][0] if found else None


def _plain(name: str) -> str:
    """ConvolutionBackward0 and aten.convolution.default are kin: both give "convolution"."""
    base = name.split(".")[1] if name.count(".") > 1 else re.sub(r"Backward\d*$", "", name.rpartition("::")[2])
    return base.replace("_", "").lower()
