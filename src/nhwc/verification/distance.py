"""How far a tensor lies from its reference, relative to the size of the reference."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Distance:
    """rms: root mean square of the difference over that of the reference. peak: the same with the greatest magnitude.

    For whole numbers and booleans both are the share of elements that differ.
    """

    rms: float
    peak: float

    def worst(self, other: Distance) -> Distance:
        """The greater of each."""
        return Distance(max(self.rms, other.rms), max(self.peak, other.peak))


NOTHING = Distance(0.0, 0.0)


def distance(
    value: torch.Tensor, reference: torch.Tensor, compared: torch.Tensor | None = None, at_least: float = 0.0
) -> Distance:
    """The distance of ``value`` from ``reference`` where ``compared`` is true (everywhere where it is None).

    at_least: the size that the reference counts as where it is smaller.

    A reference of zeros counts as one of ones: the distance is then the difference itself.

    >>> distance(torch.tensor([1.0, 2.5]), torch.tensor([1.0, 2.0])).peak
    0.25
    """
    value, reference = plain(value), plain(reference)
    if compared is not None:
        value, reference = value[compared], reference[compared]
    if value.numel() == 0:
        return NOTHING
    if not reference.is_floating_point():
        share = float((value != reference).double().mean())
        return Distance(share, share)
    difference, size = value.double() - reference.double(), reference.double()
    return Distance(
        _relative(_rms(difference), max(_rms(size), at_least)),
        _relative(float(difference.abs().max()), max(float(size.abs().max()), at_least)),
    )


def finite(value: torch.Tensor) -> torch.Tensor | None:
    """Where ``value`` is finite, in the shape that ``plain`` gives it; None where it is so everywhere."""
    value = plain(value)
    if not value.is_floating_point():
        return None
    found = torch.isfinite(value)
    return None if bool(found.all()) else found


def both(a: torch.Tensor | None, b: torch.Tensor | None) -> torch.Tensor | None:
    """Where both are true; None is true everywhere."""
    return b if a is None else a if b is None else a & b


def plain(value: torch.Tensor) -> torch.Tensor:
    """A dense real tensor with the same numbers: sparse, quantized and complex ones are spelled out."""
    value = value.detach()
    if value.is_nested:
        value = value.values()
    if value.is_quantized:
        value = value.dequantize()
    if value.layout is not torch.strided:
        value = value.to_dense()
    return torch.view_as_real(value.resolve_conj()) if value.is_complex() else value


def _rms(value: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(value)) / math.sqrt(value.numel())


def _relative(size: float, scale: float) -> float:
    return size / scale if scale > 0 else size
