"""Blocks of contenders in turn, each contender in a process of its own: who runs when, who drops out, what is kept."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from nhwc.machine import ChildError
from nhwc.measure.stats import FEWEST_PAIRS, paired_ratio
from nhwc.schema.typed import plain

PREPARE_S = 900.0
BLOCK_S = 300.0


class Worker(Protocol):
    """What answers for one contender; nhwc.machine.child.Child is one."""

    def ask(self, question: object, timeout_s: float) -> Any:
        """The answer; raises ChildError where there is none."""


@dataclass
class Entry:
    """One contender on one model and batch. samples_ms: one a round, milliseconds per step; none after a failure."""

    name: str
    samples_ms: list[float] = field(default_factory=list)
    steps: int = 1
    prepared_s: float | None = None
    disagreement: float | None = None
    failure: str = ""


def prepare(worker: Worker, entry: Entry, question: Mapping[str, Any], tolerance: float, block_ms: float) -> None:
    """Prepare a contender and check its output; what fails or disagrees is noted and is not timed."""
    try:
        said = worker.ask({"prepare": {"contender": entry.name, **question}}, PREPARE_S)
    except ChildError as error:
        entry.failure = str(error)
        return
    entry.prepared_s, entry.disagreement = said["prepared_s"], said["disagreement"]
    if not said["disagreement"] <= tolerance:  # nan too
        entry.failure = (
            f"disagrees with eager float32: {said['disagreement']:.1e} of its greatest output, over {tolerance:.0e}"
        )
    entry.steps = max(1, math.ceil(block_ms / max(said["ms"], 1e-3)))


def alternate(
    workers: Mapping[str, Worker],
    entries: Sequence[Entry],
    *,
    rounds: int,
    until_s: float,
    rest_s: float,
    seed: int,
    now_s: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> None:
    """Fill in samples: a round runs one block of each contender, in random order, with a rest before each.

    Rounds end at ``rounds``, or at the time ``until_s`` once there are enough for an interval. A contender that fails
    loses its samples; the others go on.
    """
    drawn = random.Random(seed)
    for number in range(rounds):
        running = [entry for entry in entries if not entry.failure]
        if not running or (number >= FEWEST_PAIRS and now_s() >= until_s):
            break
        taken: dict[str, float] = {}
        for entry in drawn.sample(running, len(running)):
            sleep(rest_s)  # the threads of the one before spin on for a while
            try:
                taken[entry.name] = float(workers[entry.name].ask({"block": entry.steps}, BLOCK_S)["ms"])
            except ChildError as error:
                entry.failure = f"in round {number + 1}: {error}"
                entry.samples_ms.clear()
        for entry in running:
            if entry.name in taken:
                entry.samples_ms.append(taken[entry.name])
        progress(number + 1, rounds)


def summary(entries: Sequence[Entry], baseline: str) -> list[dict[str, Any]]:
    """Every entry as JSON-able data, with the ratio of the baseline's time to its own, None without samples of both."""
    base = next((entry.samples_ms for entry in entries if entry.name == baseline and not entry.failure), [])
    written = []
    for entry in entries:
        ratio = None
        if base and entry.samples_ms and entry.name != baseline:
            ratio = plain(paired_ratio(base, entry.samples_ms))
        written.append({**plain(entry), "ratio": ratio})
    return written
