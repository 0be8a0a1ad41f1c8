"""Ctrl-C and a polite kill: noted at once, obeyed at the next step."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

#: Signals closer together than this are one request.
_ONE_REQUEST_S = 1.0


class Stopping(Exception):  # noqa: N818 - it is no error: the run is asked to end here
    """The run ends here, with a checkpoint."""


class StopRequest:
    """Whether somebody asked the run to end."""

    def __init__(self) -> None:
        self.made = False
        self._when = 0.0

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """The first signal asks, a second Ctrl-C does not wait for an answer.

        torchrun passes a Ctrl-C on that the terminal has sent to everybody already: that is one, not two.
        """
        again = self.made and number == signal.SIGINT and time.monotonic() - self._when > _ONE_REQUEST_S
        if again:
            raise KeyboardInterrupt
        if not self.made:
            self.made, self._when = True, time.monotonic()


@contextmanager
def listening() -> Iterator[StopRequest]:
    """SIGINT and SIGTERM become a request inside the block; only the main thread can listen."""
    request = StopRequest()
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:  # a shell's background jobs ignore Ctrl-C, and shall
                before[number] = signal.signal(number, request.handle)
    try:
        yield request
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
