"""Whether the values of two runs agree, judged by the error that contiguous inputs have against float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from nhwc.operators import Truth

_FACTOR = 8.0  # how many times the contiguous error channels last may have, as in verify: sums run in another order
_FLOOR = 64.0  # roundings of the dtype that are always allowed
_FLOOR_OF_DOUBLE = 65536.0  # for float64, where contiguous is its own truth and shows no error
_MOST = 0.1  # and the largest share of the value that these may come to
_LEAST_SCALE = 0.1  # inputs are about 1: what should be 0 is not judged by the rounding errors that it consists of


@dataclass(frozen=True)
class Agreement:
    """truth, and the largest errors of channels last and of contiguous, as shares of the largest value, where known.

    They are those of what is wrong, where something is. reference: what they are set against.
    """

    truth: Truth
    error: float | None = None
    contiguous_error: float | None = None
    reference: str = "float64"


Tensors = Sequence[torch.Tensor | None]


def agreement(contiguous: Tensors, channels_last: Tensors, reference: Tensors | None) -> Agreement:
    """How the results for channels last stand, against float64 where there is a reference, else against contiguous."""
    if len(contiguous) != len(channels_last) or not contiguous:
        return Agreement(Truth.WRONG if contiguous else Truth.UNCOMPARED)
    known = reference if reference is not None and len(reference) == len(contiguous) else [None] * len(contiguous)
    found = [
        _of_one(first, second, exact)
        for first, second, exact in zip(contiguous, channels_last, known, strict=True)
        if first is not None or second is not None
    ]
    return worst(found)


def worst(found: Sequence[Agreement]) -> Agreement:
    """The agreement of several together: wrong where one is wrong, and the largest errors, of the wrong ones then."""
    if not found:
        return Agreement(Truth.UNCOMPARED)
    order = (Truth.UNCOMPARED, Truth.RIGHT, Truth.RANDOM, Truth.WRONG)
    truth = max((each.truth for each in found), key=order.index)
    errors = [each for each in found if each.error is not None and (truth != Truth.WRONG or each.truth == truth)]
    largest = max(errors, key=lambda each: each.error or 0.0, default=None)
    return Agreement(truth) if largest is None else replace(largest, truth=truth)


def _of_one(first: torch.Tensor | None, second: torch.Tensor | None, exact: torch.Tensor | None) -> Agreement:
    if first is None or second is None or first.shape != second.shape or first.dtype != second.dtype:
        return Agreement(Truth.WRONG)
    if first.layout != torch.strided or second.layout != torch.strided:
        return Agreement(Truth.UNCOMPARED)
    if first.is_complex():
        first, second = (_as_real(each) for each in (first, second))
        exact = _as_real(exact) if exact is not None and exact.is_complex() else None
    if not first.is_floating_point():
        return Agreement(Truth.RIGHT if torch.equal(first, second) else Truth.WRONG)
    if first.numel() == 0:
        return Agreement(Truth.RIGHT)
    reference = "float64"
    if exact is None or exact.shape != first.shape or not exact.is_floating_point():
        exact, reference = first, "contiguous"
    error, limit, its_own = _errors(first, second, exact)
    return Agreement(Truth.RIGHT if error <= limit else Truth.WRONG, error, its_own, reference)


def _as_real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor.resolve_conj())


def _errors(first: torch.Tensor, second: torch.Tensor, exact: torch.Tensor) -> tuple[float, float, float]:
    """(error of channels last, the largest allowed, error of contiguous), as shares of the largest value."""
    wide = torch.float64
    a, b, truth = first.to(wide), second.to(wide), exact.to(wide)
    if not torch.equal(a.isfinite(), b.isfinite()) or not torch.equal(a.isnan(), b.isnan()):
        return float("inf"), 0.0, 0.0
    finite = a.isfinite() & truth.isfinite()
    scale = max(_largest(truth, finite), _LEAST_SCALE)
    error = _largest(b - truth, finite) / scale
    its_own = _largest(a - truth, finite) / scale
    floor = _FLOOR_OF_DOUBLE if first.dtype == wide else _FLOOR
    return error, _FACTOR * its_own + min(floor * torch.finfo(first.dtype).eps, _MOST), its_own


def _largest(numbers: torch.Tensor, counted: torch.Tensor) -> float:
    # no selection by a mask: it opens a parallel region even for a handful of numbers
    return float(numbers.abs().masked_fill(~counted, 0.0).max())
