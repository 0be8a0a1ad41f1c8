"""When a run stops that was asked to: all its ranks at the same step, soon after the asking."""

from __future__ import annotations

import time

from nhwc.training import ranks
from nhwc.training.context import Context
from nhwc.training.stopping import Stopping

#: torchrun kills processes that have not ended 30 seconds after it was told to stop: ranks ask each other sooner.
_EVERY_S = 2.0

#: Steps may become slower than those that were measured.
_MOST_STEPS = 32


class Agreement:
    """Ranks ask each other as often as their slowest takes two seconds of steps, which all count alike.

    Each rank counts the same steps and gets the same answer, so that none waits for one that does not ask.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._steps, self._due = 0, 1
        self._since = time.perf_counter()

    def after_step(self, *, together: bool = False) -> None:
        """Raise Stopping where a stop was asked for. Every rank calls it after each step of any kind.

        together: ranks have just met, and asking costs nothing; the same on all of them.
        """
        asked = self._context.stop.made
        if self._context.world.size > 1:
            self._steps += 1
            if not together and self._steps < self._due:
                return
            now = time.perf_counter()
            step_s = (now - self._since) / self._steps
            most_asked, slowest_s = ranks.largest((float(asked), step_s), self._context.device)
            self._due = steps_until_next(slowest_s)
            self._steps, self._since = 0, now
            asked = most_asked > 0
        if asked:
            raise Stopping


def steps_until_next(step_s: float) -> int:
    """How many steps of ``step_s`` seconds pass until ranks ask each other again."""
    return min(max(int(_EVERY_S / max(step_s, 1e-6)), 1), _MOST_STEPS)
