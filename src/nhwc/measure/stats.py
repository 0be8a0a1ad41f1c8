"""Statistics of paired timings, as pure functions: a ratio with its confidence interval, and the verdict on it.

The interval is that of Wilcoxon's signed-rank test, turned round on the logarithms of the paired ratios: its bounds are
order statistics of their pairwise means (Hodges and Lehmann, Annals of Mathematical Statistics 34, 1963). It needs no
normal noise, and a spike in one round moves it by one rank only.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence

from nhwc.timing import Ratio, Verdict

#: With fewer pairs no interval of 95 % exists: five signs agree by chance once in 16 times.
FEWEST_PAIRS = 6
_EXACT_UP_TO = 40


def paired_ratio(baseline_ms: Sequence[float], variant_ms: Sequence[float], confidence: float = 0.95) -> Ratio:
    """How many times faster than the baseline a variant is, from times of equal rounds; above 1 is faster.

    The interval is 0 to infinity where there are too few pairs for the confidence. Raises ValueError for lengths that
    differ, for no pair at all, and for times that are not above 0.

    >>> paired_ratio([2.0] * 8, [1.0, 1.0, 1.25, 1.0, 1.0, 1.0, 1.0, 0.8])
    Ratio(estimate=2.0, low=1.7888543819998317, high=2.23606797749979, pairs=8)
    """
    pairs = len(baseline_ms)
    if pairs != len(variant_ms) or pairs == 0:
        raise ValueError(f"paired samples have equal lengths of 1 or more, got {pairs} and {len(variant_ms)}")
    if min(*baseline_ms, *variant_ms) <= 0.0:
        raise ValueError("times must be above 0 ms")
    logs = [math.log(base / variant) for base, variant in zip(baseline_ms, variant_ms, strict=True)]
    means = sorted((logs[i] + logs[j]) / 2.0 for i in range(pairs) for j in range(i, pairs))
    estimate = math.exp(statistics.median(means))
    outside = ranks_outside(pairs, confidence)
    if outside is None:
        return Ratio(estimate, 0.0, math.inf, pairs)
    return Ratio(estimate, math.exp(means[outside]), math.exp(means[-1 - outside]), pairs)


@functools.cache
def ranks_outside(pairs: int, confidence: float) -> int | None:
    """How many of the sorted pairwise means lie outside the interval at either end; None where none is wide enough.

    The signed-rank distribution, exact up to 40 pairs, its normal approximation above.
    """
    tail = (1.0 - confidence) / 2.0
    if pairs > _EXACT_UP_TO:
        mean = pairs * (pairs + 1) / 4.0
        spread = math.sqrt(pairs * (pairs + 1) * (2 * pairs + 1) / 24.0)
        return max(math.floor(mean + statistics.NormalDist().inv_cdf(tail) * spread), 0)
    ways = [1]  # ways[w]: how many choices of signs give the rank sum w
    for rank in range(1, pairs + 1):
        ways = [
            (ways[w] if w < len(ways) else 0) + (ways[w - rank] if 0 <= w - rank < len(ways) else 0)
            for w in range(len(ways) + rank)
        ]
    allowed, below = tail * 2**pairs, 0
    for outside, count in enumerate(ways):
        below += count
        if below > allowed:
            return outside - 1 if outside else None
    raise AssertionError("the probabilities of all rank sums add up to 1")


def widened(ratio: Ratio, margin: float) -> Ratio:
    """The ratio with ``margin``, a share (0.01 is 1 %), added to its interval on either side.

    Two processes place weights and activations differently in memory, which moves a ratio in all rounds of one process
    alike: no number of rounds shows it, and no pairing takes it out.

    >>> widened(Ratio(1.0, 0.99, 1.01, 20), 0.25)
    Ratio(estimate=1.0, low=0.792, high=1.2625, pairs=20)
    """
    return Ratio(ratio.estimate, ratio.low / (1.0 + margin), ratio.high * (1.0 + margin), ratio.pairs)


def judge(ratio: Ratio) -> Verdict:
    """Faster or slower where the whole interval lies on one side of 1.

    >>> judge(Ratio(1.31, 1.28, 1.34, 20)), judge(Ratio(1.006, 0.996, 1.016, 90))
    (<Verdict.FASTER: 'faster'>, <Verdict.CANNOT_TELL: 'cannot tell'>)
    """
    if ratio.low > 1.0:
        return Verdict.FASTER
    return Verdict.SLOWER if ratio.high < 1.0 else Verdict.CANNOT_TELL


def judge_disturbed(baseline_ms: Sequence[float], variant_ms: Sequence[float], margin: float) -> Verdict:
    """The verdict of rounds during which the machine changed: one only where nearly every pair gives it by itself.

    No interval holds then, since there is no single ratio; but what is true of nine pairs in ten, by more than
    ``margin``, no drift and no other load has made. Unstable where that is not so, or for too few pairs.

    >>> judge_disturbed([2.0] * 8 + [9.0, 1.0], [1.0] * 10, 0.05), judge_disturbed([1.04] * 10, [1.0] * 10, 0.05)
    (<Verdict.FASTER: 'faster'>, <Verdict.UNSTABLE: 'unstable machine'>)
    """
    ratios = sorted(base / variant for base, variant in zip(baseline_ms, variant_ms, strict=True))
    if len(ratios) < FEWEST_PAIRS:
        return Verdict.UNSTABLE
    astray = len(ratios) // 10
    if ratios[astray] > 1.0 + margin:
        return Verdict.FASTER
    return Verdict.SLOWER if ratios[-1 - astray] < 1.0 / (1.0 + margin) else Verdict.UNSTABLE
