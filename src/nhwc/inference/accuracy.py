"""How far an engine's results lie from float64, beside the model's own."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from nhwc.engine_report import Accuracy

#: The engine's error may be so many times eager's.
FACTOR = 4.0
#: What it may always be: a few roundings of float32.
LEAST = 4 * torch.finfo(torch.float32).eps


def measured_accuracy(
    engine: Callable[..., Any], model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Accuracy | None:
    """Both errors on these arguments; None where float64 gives outputs of other shapes, or the model cannot run in it."""
    exact = _in_float64(model, args, kwargs)
    if exact is None:
        return None
    with torch.no_grad():
        eager = list(_floats(model(*args, **kwargs)))
        own = list(_floats(engine(*args, **kwargs)))
    if [each.shape for each in exact] != [each.shape for each in eager] or len(own) != len(eager):
        return None
    if any(one.shape != other.shape for one, other in zip(own, eager, strict=True)):
        return None
    return Accuracy(error(own, exact), error(eager, exact), FACTOR, LEAST)


def error(results: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]) -> float:
    """The greatest difference among the results, each as a share of its reference's greatest value; equal infinities
    and NaNs differ by nothing.
    """
    worst = 0.0
    for result, reference in zip(results, exact, strict=True):
        if not reference.numel():
            continue
        wide = result.double()
        alike = (wide == reference) | (wide.isnan() & reference.isnan())
        difference = torch.where(alike, 0.0, (wide - reference).abs())
        scale = reference[reference.isfinite()].abs().max().item() if reference.isfinite().any() else 1.0
        share = difference.nan_to_num(nan=float("inf")).max().item() / (scale or 1.0)
        worst = max(worst, share)
    return worst


def _in_float64(
    model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[torch.Tensor] | None:
    def wide(value: Any) -> Any:
        return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value

    try:
        with torch.no_grad():
            found = copy.deepcopy(model).double()(*pytree.tree_map(wide, tuple(args)), **pytree.tree_map(wide, dict(kwargs)))
    except Exception:  # noqa: BLE001 whatever a model that holds to float32 raises
        return None
    return list(_floats(found))


def _floats(outputs: Any) -> Iterator[torch.Tensor]:
    for each in pytree.tree_leaves(outputs):
        if isinstance(each, torch.Tensor) and each.is_floating_point():
            yield each
