"""Where the time of a run goes: waiting for data, forward, backward, communication, optimizer."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

PARTS = ("data", "forward", "backward", "communication", "optimizer")


@dataclass(frozen=True)
class Shares:
    """Seconds that each part of the training steps took, by the name of the part.

    communication is what backward still waited for once the last gradient was there: the rest ran behind it. It is
    None where that cannot be told apart (parameters are sharded), and then counts as forward and backward.
    """

    seconds: dict[str, float | None]

    @property
    def total_s(self) -> float:
        return sum(value or 0.0 for value in self.seconds.values())

    def share(self, part: str) -> float | None:
        """The part's share of the total, 0 to 1; None where it was not measured."""
        value, total = self.seconds[part], self.total_s
        return None if value is None or not total else value / total


class Stopwatch:
    """Adds up the time between marks, each under the name of the part that ends there.

    On a GPU the marks are events in its queue, read by ``collect``; the wait for data is what the queue stood still.
    """

    def __init__(self, device: torch.device) -> None:
        self._now: Callable[[], Any] = time.perf_counter if device.type != "cuda" else _cuda_event
        self._pending: list[tuple[str, Any, Any]] = []
        self._last: Any = None
        self._ready: Any = None
        self.seconds = dict.fromkeys(PARTS, 0.0)

    def start(self) -> None:
        """What passed since the last mark counts for nothing."""
        self._last = self._now()

    def mark(self, part: str) -> None:
        """The time since the last mark belongs to ``part``."""
        now = self._now()
        self._pending.append((part, self._last, now))
        self._last = now

    def gradient_ready(self, *_: object) -> None:
        """A gradient is there; the last one before ``mark_backward`` ends the computing."""
        if self._ready is None or isinstance(self._ready, float):
            self._ready = self._now()
        else:
            self._ready.record()  # the same event again: a new one for each parameter would cost

    def mark_backward(self) -> None:
        """Backward ended: split at the last gradient where there was one."""
        if self._ready is not None:
            self._pending.append(("backward", self._last, self._ready))
            self._last, self._ready = self._ready, None
            self.mark("communication")
        else:
            self.mark("backward")

    def collect(self) -> None:
        """Add up what is pending; waits for a GPU to come to the last mark."""
        for part, begin, end in self._pending:
            self.seconds[part] += end - begin if isinstance(begin, float) else _elapsed_s(begin, end)
        self._pending.clear()

    def forget(self) -> None:
        """Leave out what is pending."""
        self._pending.clear()

    def watch(self, model: nn.Module) -> None:
        """Learn of every gradient of ``model``, so that communication can be told from computing."""
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self.gradient_ready)  # type: ignore[no-untyped-call]


def _cuda_event() -> Any:
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call, unused-ignore]
    event.record()
    return event


def _elapsed_s(begin: Any, end: Any) -> float:
    end.synchronize()
    milliseconds: float = begin.elapsed_time(end)
    return milliseconds / 1000
