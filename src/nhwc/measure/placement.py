"""Where tensors come to lie in memory, varied from round to round.

A process settles into one placement of its buffers and keeps it: the ratio of two variants then differs from process
to process by several percent, which no number of rounds in one process shows. With other blocks held in each round the
rounds sample placements too, and the interval covers them (Curtsinger and Berger, "Stabilizer: Statistically Sound
Performance Evaluation", ASPLOS 2013).
"""

from __future__ import annotations

import random

import torch

_BLOCKS = 100
_MOST_ELEMENTS = 400_000


class Placement:
    """Blocks of float32 on the CPU, of up to 1.6 MB each and never written, that other tensors have to lie around."""

    def __init__(self, seed: int) -> None:
        self._sizes = random.Random(seed)  # noqa: S311 no secret
        self._held: list[torch.Tensor] = []

    def change(self) -> None:
        """Let go of the blocks that are held and hold others, of other sizes."""
        self._held.clear()
        self._held.extend(torch.empty(self._sizes.randrange(1, _MOST_ELEMENTS)) for _ in range(_BLOCKS))
