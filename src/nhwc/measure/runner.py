"""Runs contenders in turn: warm-up until stable, rounds in random order, until intervals are narrow or time is up."""

from __future__ import annotations

import functools
import gc
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field

from nhwc.measure.clock import Clock
from nhwc.measure.stats import FEWEST_PAIRS, paired_ratio
from nhwc.timing import Stop

_WARMEST = 0.95  # a step that is no faster than this share of the best before shows that warm-up is over
_LEAST_WARMUP, _MOST_WARMUP = 3, 20
_WARMUP_SHARE = 0.25  # of the budget, for all contenders together
_SAMPLE_MS = 5.0  # shorter steps are repeated within a sample, so that the clock's own cost does not count
_MOST_CALLS = 500
_LEAD_IN_MS = 100.0  # shorter steps run once untimed before each sample: the one before has filled the caches
_LOOK_AGAIN = 1.25  # rounds grow by this factor between two looks at the intervals


@dataclass(frozen=True)
class Limits:
    """When to stop. precision: half width of an interval that is narrow enough (0.02 is 2 %). budget_s: of rounds."""

    precision: float = 0.02
    budget_s: float = 60.0
    confidence: float = 0.95
    most_rounds: int = 400
    least_rounds: int = 10


@dataclass
class Contender:
    """A step that is measured. calls: steps that one sample averages; failure: what it raised, if it did.

    context: makes what its steps run in, entered outside the clock around each warm-up and each sample.
    """

    name: str
    step: Callable[[], object]
    samples_ms: list[float] = field(default_factory=list)
    warmup_ms: list[float] = field(default_factory=list)
    calls: int = 1
    failure: Exception | None = None
    context: Callable[[], AbstractContextManager[object]] = nullcontext

    @property
    def typical_ms(self) -> float:
        """Milliseconds of a step, from the latest of what is known."""
        return statistics.median((self.samples_ms or self.warmup_ms)[-5:])


Progress = Callable[[str, float], None]


def run_rounds(
    contenders: Sequence[Contender],
    baseline: str,
    clock: Clock,
    limits: Limits,
    seed: int = 0,
    progress: Progress | None = None,
    now_s: Callable[[], float] = time.monotonic,
    before_round: Callable[[], object] | None = None,
) -> Stop:
    """Fill in the samples of ``contenders``; says why it stopped.

    A contender that raises drops out with its ``failure``; where it is the baseline, the exception is raised.
    seed: of the order within the rounds. progress: told (stage, seconds gone). now_s: the clock of the budget.
    before_round: called before each round, untimed.
    """
    order = random.Random(seed)  # noqa: S311 no secret
    tell = progress or (lambda _stage, _seconds: None)
    warmup_s = limits.budget_s * _WARMUP_SHARE / len(contenders)
    with _without_collections():
        for contender in contenders:
            tell(f"warming up {contender.name}", 0.0)
            _guarded(contender, baseline, functools.partial(_warm_up, contender, clock, warmup_s, now_s))
        _share_calls(contenders)
        started = now_s()
        look_at, narrow = limits.least_rounds, False
        for done in range(limits.most_rounds):
            running = [each for each in contenders if each.failure is None]
            if len(running) < 2:
                return Stop.ALONE
            if done >= look_at:
                # rounds that happen to agree end it too early: some more follow before it stops
                if narrow:
                    return Stop.NARROW
                narrow = _narrow(running, baseline, limits)
                look_at = math.ceil(done * _LOOK_AGAIN)
            round_s = sum(each.typical_ms * _steps_in_sample(each) for each in running) / 1000.0
            if done > 0 and now_s() - started + round_s > limits.budget_s:
                return Stop.BUDGET
            tell(f"round {done + 1}", now_s() - started)
            if before_round is not None:
                before_round()
            _round(running, baseline, clock, order)
    return Stop.ROUNDS


def _warm_up(contender: Contender, clock: Clock, most_s: float, now_s: Callable[[], float]) -> None:
    times = contender.warmup_ms
    times.append(clock.time_ms(contender.step))  # compiles, packs, fills caches: not held against the time for warm-up
    until_s = now_s() + most_s
    while len(times) < _MOST_WARMUP:
        times.append(clock.time_ms(contender.step))
        settled = len(times) >= _LEAST_WARMUP and times[-1] >= _WARMEST * min(times[:-1])
        if settled or now_s() >= until_s:
            break


def _share_calls(contenders: Sequence[Contender]) -> None:
    """Give all the same number of steps in a sample: a model that changes from step to step then ages alike in each."""
    fastest = min((min(each.warmup_ms) for each in contenders if each.failure is None), default=_SAMPLE_MS)
    for contender in contenders:
        contender.calls = max(1, min(_MOST_CALLS, math.ceil(_SAMPLE_MS / max(fastest, 1e-6))))


def _steps_in_sample(contender: Contender) -> int:
    return contender.calls + (1 if contender.typical_ms < _LEAD_IN_MS else 0)


def _round(contenders: Sequence[Contender], baseline: str, clock: Clock, order: random.Random) -> None:
    shuffled = list(contenders)
    order.shuffle(shuffled)
    sampled: dict[str, float] = {}
    for contender in shuffled:
        _guarded(contender, baseline, functools.partial(_sample, contender, clock, sampled))
        gc.collect(0)  # what the step left in cycles
    for contender in contenders:
        if contender.name in sampled:
            contender.samples_ms.append(sampled[contender.name])


def _sample(contender: Contender, clock: Clock, sampled: dict[str, float]) -> None:
    if contender.typical_ms < _LEAD_IN_MS:
        contender.step()

    def several() -> None:
        for _ in range(contender.calls):
            contender.step()

    run = several if contender.calls > 1 else contender.step
    sampled[contender.name] = clock.time_ms(run) / contender.calls


def _guarded(contender: Contender, baseline: str, run: Callable[[], object]) -> None:
    """Run something of a contender's in its context; what it raises ends it, or everything if it is the baseline."""
    try:
        with contender.context():
            run()
    except Exception as error:
        if contender.name == baseline:
            raise
        contender.failure = error
        contender.samples_ms.clear()


def _narrow(contenders: Sequence[Contender], baseline: str, limits: Limits) -> bool:
    base = next(each for each in contenders if each.name == baseline)
    ratios = [
        paired_ratio(base.samples_ms, each.samples_ms, limits.confidence) for each in contenders if each is not base
    ]
    return len(base.samples_ms) >= FEWEST_PAIRS and all(ratio.half_width <= limits.precision for ratio in ratios)


@contextmanager
def _without_collections() -> Iterator[None]:
    """Python's garbage collector runs between samples, not inside them."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
