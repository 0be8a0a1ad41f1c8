"""Means of a batch norm: they are as exact as the spread of what they average, not as their own size.

Behind a layer that keeps a mean of zero (a linear convolution of normalised values) the mean is all cancellation, and
how much rounding it keeps depends on the order in which a kernel sums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

Key = tuple[str, str]
_MEAN, _VARIANCE = "running_mean", "running_var"


def least_size(key: Key, tensors: Mapping[Key, torch.Tensor]) -> float:
    """The spread beside a running mean, 0 for any other result."""
    group, name = key
    variance = tensors.get((group, name.removesuffix(_MEAN) + _VARIANCE)) if name.endswith(_MEAN) else None
    return 0.0 if variance is None or variance.numel() == 0 else float(variance.double().mean().clamp(min=0)) ** 0.5


def sizes_in_call(func: Any, args: Sequence[torch.Tensor | Any]) -> dict[Key, float]:
    """The same for the results of a batch norm operator: its mean, and the running mean that it writes."""
    if "batch_norm" not in func._schema.name or "backward" in func._schema.name:
        return {}
    values = args[0]
    if not isinstance(values, torch.Tensor) or not values.is_floating_point() or values.numel() == 0:
        return {}
    spread = float(values.double().std(correction=0))
    return {("output", "result 1"): spread, ("output", "written operand 0"): spread}
