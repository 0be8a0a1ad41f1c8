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
        #: number → thread → (call, operator)
        self._calls: dict[int, dict[int, tuple[int, str]]] = {}
        #: thread → (next number, last call that was noted, its operator, whether it wrote an operand)
        self._last: dict[int, tuple[int, int, str, bool]] = {threading.get_ident(): (_get_next_number(), -1, "", False)}

    def note(self, call: int, operator: str, *, makes_node: bool, mutates: bool) -> None:
        """Numbers taken since the last call belong to it (an in-place operator on a view makes nodes after itself), but
        for the newest, which is the own one of a call that makes a node or runs inside a function that made one."""
        thread, end = threading.get_ident(), _get_next_number()
        start, previous, previous_operator, mutated = self._last.get(thread, (end - 1, -1, "", False))
        for number in range(start, end):
            own = number == end - 1 and (makes_node or not mutated)
            owner = (call, operator) if own or previous < 0 else (previous, previous_operator)
            self._calls.setdefault(number, {})[thread] = owner
        self._last[thread] = (end, call, operator, mutates)

    def of(self, node: Any) -> int | None:
        """The call that made ``node``, None for a node that is older than the recording.

        Threads count alike: among several calls of that number the one whose operator the node is named after, else the
        one of this thread.
        """
        calls = self._calls.get(node._sequence_nr(), {})
        found = list(calls.values())
        if len(found) > 1:
            kin = [(call, operator) for call, operator in found if _plain(operator) == _plain(node.name())]
            found = kin if len(kin) == 1 else [calls[thread] for thread in [threading.get_ident()] if thread in calls]
        return found[0][0] if found else None


def _plain(name: str) -> str:
    """ConvolutionBackward0 and aten.convolution.default are kin: both give "convolution"."""
    base = name.split(".")[1] if name.count(".") > 1 else re.sub(r"Backward\d*$", "", name.rpartition("::")[2])
    return base.replace("_", "").lower()
