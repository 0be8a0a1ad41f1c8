"""Made-up machines: a clock whose times come from a seeded model of noise instead of from work."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from nhwc.measure.clock import Clock

Noise = Callable[[random.Random, int], float]
"""(random numbers, how many steps have run) → factor on the time of a step."""


def quiet(numbers: random.Random, step: int) -> float:
    """Two percent of bell-shaped noise."""
    return numbers.lognormvariate(0.0, 0.02)


def drifting(numbers: random.Random, step: int) -> float:
    """A clock that slows by a tenth of a percent with every step."""
    return quiet(numbers, step) * (1.0 + 0.001 * step)


def spiky(numbers: random.Random, step: int) -> float:
    """One step in ten takes up to three times as long."""
    return quiet(numbers, step) * (1.0 + (2.0 * numbers.random() if numbers.random() < 0.1 else 0.0))


def bimodal(numbers: random.Random, step: int) -> float:
    """Every step runs at one of two speeds, 12 percent apart."""
    return quiet(numbers, step) * (1.12 if numbers.random() < 0.4 else 1.0)


def regimes(numbers: random.Random, step: int) -> float:
    """The clock changes between two speeds, 15 percent apart, every 17 steps."""
    return quiet(numbers, step) * (1.15 if (step // 17) % 2 else 1.0)


MACHINES: dict[str, Noise] = {
    "quiet": quiet,
    "drifting": drifting,
    "spiky": spiky,
    "bimodal": bimodal,
    "regimes": regimes,
}


@dataclass
class FakeClock(Clock):
    """Steps return their true milliseconds; the clock adds noise and moves its own time on. Nothing waits."""

    noise: Noise
    seed: int = 0
    now: float = 0.0
    steps: int = 0
    numbers: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.numbers = random.Random(self.seed)

    def time_ms(self, call: Callable[[], object]) -> float:
        true_ms = call()
        assert isinstance(true_ms, float)
        self.steps += 1
        ms = true_ms * self.noise(self.numbers, self.steps)
        self.now += ms / 1000.0
        return ms

    def now_s(self) -> float:
        return self.now
