"""The rule: a result passes where its error is at most ``factor`` times the error that contiguous format has by chance.

An error is the distance from float64. What contiguous format has by chance is the greatest error among contiguous runs:
the plain ones, and, where a result would fail, runs whose values are moved by some roundings of their dtype.
A floor of a few roundings keeps a lucky contiguous error of zero from failing everything.

A model may do something else in float64 (code that asks for the dtype, random numbers of its own). Then contiguous
format is far from float64, and would excuse anything. So a great contiguous error is believed only where nudged runs
are spread as far; elsewhere contiguous format itself is the reference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch

from nhwc.proof import ResultError
from nhwc.verification import statistics
from nhwc.verification.distance import NOTHING, Distance, both, distance, finite, plain
from nhwc.verification.run import Key, Results

#: Of the coarsest dtype that takes part: what any format may be off, however lucky contiguous format is.
FLOOR_ROUNDINGS = 4.0
#: Dtypes from this epsilon on (float16, bfloat16) are so coarse that the floor would hide a result a fifth too large.
LOW_EPSILON = 2.0**-10
_FLOOR_ROUNDINGS_LOW = 1.0
#: What a single operator may be further off in such a dtype than contiguous format: one kernel rounds once.
SLACK_ROUNDINGS = 2.0
#: A result that is zero but for rounding has no digit right in any format (a contiguous error above 1): how large the
#: rest is depends on the order of summation alone, and it may be this many times as large.
_CANCELLED = 100.0
#: A contiguous error above this many floors, or above this share, has to be explained by nudged runs.
_DOUBT_FLOORS, _DOUBT_SHARE = 1000.0, 0.1
#: How many times further from float64 than nudged runs are spread contiguous format may be.
_EXPLAINED = 100.0


class Baseline:
    """Contiguous results with their errors, and the judge of a variant's results.

    contiguous: the run that everything is compared with in shape, dtype and non-finite values.
    reference: the float64 results; None judges against ``contiguous`` alone.
    rounding: the epsilon of the dtype that the variant computes in (autocast's), 0 for each result's own.
    least: sizes that results count as where they are smaller.
    single: the results are those of one operator call: a coarse dtype then allows a few roundings more than contiguous
    format has, not ``factor`` times that.
    """

    def __init__(
        self,
        contiguous: Results,
        reference: Results | None,
        factor: float,
        rounding: float = 0.0,
        least: Mapping[Key, float] | None = None,
        single: bool = False,
    ) -> None:
        self._least = least or {}
        self._single = single
        self.contiguous = contiguous
        self.factor = factor
        self._reference = reference
        self._rounding = rounding
        self._chance: dict[Key, Distance] = {}
        self._compared: dict[Key, torch.Tensor | None] = {}
        self._sizes: dict[Key, float] = {}
        self.distrusted: set[Key] = set()
        self.widen(contiguous)

    def reference_of(self, key: Key) -> torch.Tensor:
        """What ``key`` is measured against."""
        if self._reference is not None and key in self._reference.tensors and key not in self.distrusted:
            found = self._reference.tensors[key]
            if found.shape == self.contiguous.tensors[key].shape:
                return found
        return self.contiguous.tensors[key]

    def compared(self, key: Key) -> torch.Tensor | None:
        """Where a result is finite both in contiguous format and in float64: elsewhere there is nothing to compare.
        None says everywhere."""
        if key not in self._compared:
            self._compared[key] = both(finite(self.contiguous.tensors[key]), finite(self.reference_of(key)))
        return self._compared[key]

    def widen(self, results: Results) -> None:
        """Take the errors of one more contiguous run into what happens by chance."""
        for key, value in results.tensors.items():
            ours = self.contiguous.tensors.get(key)
            if ours is None or ours.shape != value.shape or ours.dtype != value.dtype:
                continue
            compared = both(self.compared(key), finite(value))
            found = distance(value, self.reference_of(key), compared, self._size(key))
            self._chance[key] = found.worst(self._chance.get(key, found))

    def doubtful(self) -> set[Key]:
        """Results that contiguous format has further from float64 than rounding alone explains."""
        found = set()
        for key, chance in self._chance.items():
            floor = self._floor(self.contiguous.tensors[key])
            if chance.rms > (min(_DOUBT_FLOORS * floor, _DOUBT_SHARE) or _DOUBT_SHARE) and key not in self.distrusted:
                found.add(key)
        return found

    def distrust(self, keys: set[Key], moved: Sequence[Results]) -> None:
        """Take contiguous format as the reference of those ``keys`` that no nudged run explains the error of."""
        for key in keys:
            ours, scale = self.contiguous.tensors[key], self.reference_of(key)
            spread = max((_spread(each.tensors.get(key), ours, scale) for each in moved), default=0.0)
            if spread * _EXPLAINED < self._chance[key].rms:
                self.distrusted.add(key)
                self._compared.pop(key, None)
                self._chance[key] = NOTHING
        for each in moved:
            self.widen(each)

    def judge(self, results: Results) -> tuple[ResultError, ...]:
        """Every result of a variant, and every one that it should have; buffers that nothing changed are left out."""
        return tuple(self._judged(results))

    def _judged(self, results: Results) -> Iterator[ResultError]:
        for key, ours in self.contiguous.tensors.items():
            group, _name = key
            value = results.tensors.get(key)
            if value is None:
                yield _failed(key, "it is missing; contiguous format has it")
            elif group == "buffer" and not self._moved(key, results):
                continue
            else:
                yield self.judge_tensor(key, value, ours)
        for key in results.tensors.keys() - self.contiguous.tensors.keys():
            yield _failed(key, "contiguous format has no such result")

    def _moved(self, key: Key, results: Results) -> bool:
        return self.contiguous.changed.get(key, True) or results.changed.get(key, True)

    def judge_tensor(self, key: Key, value: torch.Tensor, ours: torch.Tensor) -> ResultError:
        """One result against the contiguous one."""
        if value.shape != ours.shape:
            return _failed(key, f"its shape is {tuple(value.shape)}; in contiguous format {tuple(ours.shape)}")
        if value.dtype != ours.dtype:
            return _failed(key, f"its dtype is {_word(value.dtype)}; in contiguous format {_word(ours.dtype)}")
        compared, whole = self.compared(key), finite(value)
        broken = 0 if whole is None else int((~whole if compared is None else compared & ~whole).sum())
        if broken:
            return _failed(key, f"{broken} of {value.numel()} elements are not finite; in contiguous format they are")
        found, chance = distance(value, self.reference_of(key), compared, self._size(key)), self._chance[key]
        pairs = [
            (each, by_chance, self._limit(by_chance, ours))
            for each, by_chance in ((found.rms, chance.rms), (found.peak, chance.peak))
        ]
        error, by_chance, limit = max(pairs, key=lambda pair: pair[0] / pair[2] if pair[2] else pair[0])
        passed = error <= limit
        reason = ""
        if not passed and not plain(ours).is_floating_point():
            reason = f"{error:.2%} of its elements differ"
        elif not passed:
            reason = f"its error is {error:.2g} where contiguous format has {by_chance:.2g}"
        return ResultError(*key, error, by_chance, limit, passed, reason)

    def _size(self, key: Key) -> float:
        """What the reference of ``key`` counts as at least."""
        if key not in self._sizes:
            self._sizes[key] = self._least.get(key, 0.0) or statistics.least_size(key, self.contiguous.tensors)
        return self._sizes[key]

    def _limit(self, by_chance: float, value: torch.Tensor) -> float:
        often = _CANCELLED if by_chance > 1 else 1.0
        epsilon = self._epsilon(value)
        if self._single and epsilon >= LOW_EPSILON:
            return max(2 * by_chance, by_chance + SLACK_ROUNDINGS * epsilon) * often
        return self.factor * max(by_chance, self._floor(value)) * often

    def _floor(self, value: torch.Tensor) -> float:
        epsilon = self._epsilon(value)
        return (_FLOOR_ROUNDINGS_LOW if epsilon >= LOW_EPSILON else FLOOR_ROUNDINGS) * epsilon

    def _epsilon(self, value: torch.Tensor) -> float:
        """Of the coarsest dtype that takes part, 0 for whole numbers."""
        value = plain(value)
        return max(torch.finfo(value.dtype).eps, self._rounding) if value.is_floating_point() else 0.0


def _spread(moved: torch.Tensor | None, ours: torch.Tensor, scale: torch.Tensor) -> float:
    """How far a nudged result lies from the plain one, relative to the size of ``scale``."""
    if moved is None or moved.shape != ours.shape:
        return float("inf")
    if not plain(ours).is_floating_point():
        return distance(moved, ours).rms
    difference = plain(scale).double() + (plain(moved).double() - plain(ours).double())
    return distance(difference, scale, both(both(finite(scale), finite(ours)), finite(moved))).rms


def _failed(key: Key, reason: str) -> ResultError:
    return ResultError(*key, float("inf"), 0.0, 0.0, False, reason)


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
