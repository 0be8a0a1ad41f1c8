"""NaN and infinities that the model makes itself, in whatever format."""

from __future__ import annotations

import torch

from nhwc.verification.distance import finite
from nhwc.verification.judge import Baseline


def notes_of(baseline: Baseline) -> list[str]:
    """One sentence on values that are not finite in any format, and one on those that only the dtype cannot hold."""
    own, overflow = [], []
    for key, value in baseline.contiguous.tensors.items():
        whole, reference = finite(value), finite(baseline.reference_of(key))
        if whole is None:
            continue
        broken = ~whole
        everywhere = broken & ~reference if reference is not None else torch.zeros_like(broken)
        own += [key[1]] if bool(everywhere.any()) else []
        overflow += [key[1]] if bool((broken & ~everywhere).any()) else []
    notes = []
    if own:
        notes.append(
            f"the model itself makes NaN or infinity in {_named(own)}, in contiguous format and in float64 alike; the "
            "other elements are compared"
        )
    if overflow:
        notes.append(
            f"{_named(overflow)}: not finite in contiguous format though finite in float64, so the dtype overflows; "
            "the other elements are compared"
        )
    return notes


def _named(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
