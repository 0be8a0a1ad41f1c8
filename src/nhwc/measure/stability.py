"""Whether the machine held still during a measurement: drift, two speeds, and other load, as pure functions.

What all contenders have in common moves with the machine, and pairing takes it out of the ratios; only where it is
gross does it count here. What moves the ratio itself counts sooner, since the interval is then no longer one of a
single number.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from nhwc.timing import Load

_FEWEST_FOR_DRIFT, _FEWEST_FOR_TWO = 8, 10  # rounds
_COMMON_CHANGE = 0.5  # of time, for what all contenders share: machines that others use drift by a third in a minute
_RATIO_CHANGE = 0.08  # of a ratio
_CHANCE = 1e-3  # a trend that chance makes this seldom
_SEPARATION = 5.0  # distance of two groups over their own spread; one bell curve cut in two has 2.7, a flat one 3.5
_LEAST_SHARE = 0.3  # of the rounds in the smaller group


def instabilities(
    samples_ms: Mapping[str, Sequence[float]], baseline: str, load: Load | None = None
) -> tuple[str, ...]:
    """Sentences on what makes a verdict unsafe, none where nothing does. Samples of equal place belong together."""
    found = list(load_sentences(load)) if load is not None else []
    logs = {name: [math.log(ms) for ms in times] for name, times in samples_ms.items() if times}
    if baseline not in logs or len(logs[baseline]) < _FEWEST_FOR_DRIFT:
        return tuple(found)
    middles = {name: statistics.median(values) for name, values in logs.items()}
    common = [
        statistics.fmean(values[place] - middles[name] for name, values in logs.items())
        for place in range(len(logs[baseline]))
    ]
    found += _moved(common, _COMMON_CHANGE, "times")
    for name, values in logs.items():
        if name != baseline:
            ratio = [base - value for base, value in zip(logs[baseline], values, strict=True)]
            found += _moved(ratio, _RATIO_CHANGE, f"the ratio of {name}")
    return tuple(found)


def _moved(logs: Sequence[float], least: float, what: str) -> list[str]:
    change = drift(logs)
    if abs(change) >= math.log1p(least):
        return [f"{what} drifted by {_percent(change)} from the first round to the last"]
    distance = two_speeds(logs) if len(logs) >= _FEWEST_FOR_TWO else 0.0
    if distance >= math.log1p(least):
        return [f"{what} fell into two groups {_percent(distance)} apart"]
    return []


def _percent(log: float) -> str:
    return f"{100.0 * math.expm1(abs(log)):.0f} %"


def drift(values: Sequence[float]) -> float:
    """The change from the first value to the last along their trend (Theil and Sen), 0.0 where chance may make it.

    Significance by Kendall's tau in its normal approximation.
    """
    count = len(values)
    signs, slopes = 0, []
    for later in range(count):
        for earlier in range(later):
            difference = values[later] - values[earlier]
            signs += (difference > 0) - (difference < 0)
            slopes.append(difference / (later - earlier))
    if not slopes:
        return 0.0
    spread = math.sqrt(count * (count - 1) * (2 * count + 5) / 18.0)
    chance = 2.0 * (1.0 - statistics.NormalDist().cdf(max(abs(signs) - 1, 0) / spread))
    return statistics.median(slopes) * (count - 1) if chance < _CHANCE else 0.0


def two_speeds(values: Sequence[float]) -> float:
    """How far apart two groups lie into which the values fall, 0.0 where they make one.

    The cut is where the groups' own spread is least (Otsu); it counts where they are clearly apart and neither small.
    """
    ordered = sorted(values)
    count = len(ordered)
    least = max(2, math.ceil(_LEAST_SHARE * count))
    best: tuple[float, int] | None = None
    for cut in range(least, count - least + 1):
        inside = _scatter(ordered[:cut]) + _scatter(ordered[cut:])
        if best is None or inside < best[0]:
            best = (inside, cut)
    if best is None:
        return 0.0
    low, high = ordered[: best[1]], ordered[best[1] :]
    distance = statistics.fmean(high) - statistics.fmean(low)
    within = math.sqrt(best[0] / count)
    return distance if distance > _SEPARATION * within else 0.0


def _scatter(values: Sequence[float]) -> float:
    mean = statistics.fmean(values)
    return sum((value - mean) ** 2 for value in values)


def load_sentences(load: Load) -> list[str]:
    """What else the machine did that moves times, a sentence each; none where it did not do much."""
    found = []
    if load.threads > load.cores:
        found.append(f"{load.threads} threads shared {load.cores:g} cores: measure with {load.cores:g} at most")
    elif load.is_crowded:
        found.append(f"other processes kept {load.others:.1f} of {load.cores:g} cores busy, which {_threads(load)}")
    if load.stolen > 0.1:
        found.append(f"the hypervisor took {load.stolen:.1f} cores' time away")
    if load.throttled > 0.02:
        found.append(f"a CPU limit held the process back {_share(load.throttled)} of the time: use fewer threads")
    return found


def _threads(load: Load) -> str:
    if load.threads == 1:
        return "the one thread that was measured needed too: stop them"
    return f"the {load.threads} threads that were measured needed too: stop them, or measure with fewer threads"


def _share(share: float) -> str:
    return f"{100.0 * share:.0f} %"
