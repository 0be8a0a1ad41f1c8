"""The engine's outputs against float64, and Winograd switched off where it costs too much accuracy."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from nhwc.engine_report import MOST_TIMES, Accuracy
from nhwc.inference.building import inexact_items, own_error, relative_error, runner
from nhwc.inference.callers import first_line
from nhwc.inference.narrowing import error_floor
from nhwc.inference.specialization import Specialization
from nhwc.inference.turns import TURNS
from nhwc.progress import Progress

#: Relative. Rounding stays far below; another scale, weight or operator does not.
_SAME = 1e-3


def settle(
    of: Specialization,
    model: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    threads: int,
    progress: Progress,
) -> Accuracy:
    """Compare with the model in float64 on the example, and give up inexact algorithms, the worst first, until the
    error is within the bound or none is left.
    """
    progress("comparing with float64", 0, 1)
    flat = pytree.tree_leaves((tuple(args), dict(kwargs)))
    with torch.no_grad():
        try:
            with TURNS.shared():
                exact = _tensors(_in_float64(model, args, kwargs))
        except Exception as error:  # noqa: BLE001 whatever the user's code raises in float64
            return Accuracy(float("nan"), float("nan"), (), f"the model does not run in float64: {first_line(error)}")
        eager = _error(_eager(model, args, kwargs), exact)
        planned = of.plans[threads]

        def measured(gone: Sequence[str] = ()) -> Accuracy:
            error = _error(_tensors(_outputs(of, flat, threads)), exact)
            return Accuracy(error, eager, tuple(gone), "", error_floor(planned))

        result = measured()
        left = [] if result.holds else inexact_items(planned, threads)
        left.sort(key=lambda item: own_error(planned, item, threads))
        many, gone = 1, []
        while not result.holds and left:
            for item in left[-many:]:
                planned.exact.add(item.node)
                gone.append(item.node.path)
            del left[-many:]
            many *= 2
            of.runners[threads] = runner(planned, threads, of.chooser, progress)
            result = measured(gone)
    progress("comparing with float64", 1, 1)
    return result


def agrees(
    of: Specialization, model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], threads: int
) -> bool:
    """Whether it computes what the model does, on the example: a coarse question, before that of accuracy."""
    flat = pytree.tree_leaves((tuple(args), dict(kwargs)))
    with torch.no_grad():
        error = _error(_tensors(_outputs(of, flat, threads)), _eager(model, args, kwargs))
        return error <= max(_SAME, MOST_TIMES * error_floor(of.plans[threads]))


def _eager(model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """The model's own outputs, while no other thread exports it."""
    copies = pytree.tree_map(_cloned, (tuple(args), dict(kwargs)))  # a model may write into its input
    with TURNS.shared():
        return _tensors(model(*copies[0], **copies[1]))


def _cloned(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def _outputs(of: Specialization, flat: Sequence[Any], threads: int) -> list[Any]:
    return of.ready(threads)([flat[place] for place in of.tensors])


def _in_float64(model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    def wide(each: Any) -> Any:
        return each.double() if isinstance(each, torch.Tensor) and each.is_floating_point() else _cloned(each)

    double = copy.deepcopy(model).double()
    return double(*pytree.tree_map(wide, tuple(args)), **pytree.tree_map(wide, dict(kwargs)))


def _tensors(outputs: Any) -> list[torch.Tensor]:
    leaves = pytree.tree_leaves(outputs)
    return [each for each in leaves if isinstance(each, torch.Tensor) and each.is_floating_point()]


def _error(outputs: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]) -> float:
    """The largest over all outputs; infinite where shapes differ, not counted where float64 itself is not finite."""
    if len(outputs) != len(exact) or any(one.shape != other.shape for one, other in zip(outputs, exact, strict=False)):
        return float("inf")
    finite = [(one, other) for one, other in zip(outputs, exact, strict=True) if bool(other.isfinite().all())]
    return max((relative_error(one, other) for one, other in finite), default=0.0)
