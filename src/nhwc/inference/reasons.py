"""Why a model was not captured, in one sentence: the user's line, what was wrong there, and what to do.

Read from torch 2.11 to 2.14: ``torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode`` is what tracing
raises where code asks for a value that is known only while the model runs.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from nhwc.inference.callers import first_line, users_place
from nhwc.inference.held_back import held_back
from nhwc.inference.signature_text import arguments_text, dtype_text

_DATA_DEPENDENT = "GuardOnDataDependentSymNode"


def export_reason(error: Exception) -> str:
    """The innermost line of code that is neither torch's nor Python's own, and the first line of what was raised."""
    place, code = users_place(error)
    where = f" at {place}" if place else ""
    if type(error).__name__ == _DATA_DEPENDENT:
        line = f" (`{code}`)" if code else ""
        return (
            f"torch.export cannot take the model{where}: this line{line} needs a tensor's values to go on, and a "
            "captured model has one path for all values; compute both ways and choose with torch.where, or decide "
            "outside the model and give the engine the part behind the decision"
        )
    return f"torch.export cannot take the model{where}: {first_line(error)}"


def example_reason(
    model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], error: Exception
) -> tuple[str, Exception]:
    """``export_reason`` and its cause, or the model's own error where eager mode does not take the example either.

    A copy of the model is asked, so that it and the state of random numbers stay as they are.
    """
    reason = export_reason(error), error
    if type(error).__name__ == _DATA_DEPENDENT:
        return reason
    flat, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
    own_args, own_kwargs = pytree.tree_unflatten([_cloned(each) for each in flat], spec)
    try:
        asked = copy.deepcopy(model)
    except Exception:  # noqa: BLE001 what cannot be copied is not asked
        return reason
    try:
        with torch.no_grad(), held_back(), torch.random.fork_rng(devices=[]):
            asked(*own_args, **own_kwargs)
    except Exception as own:  # noqa: BLE001 whatever the user's code raises
        place, _ = users_place(own)
        where = f" at {place}" if place else ""
        given = arguments_text(flat, spec)
        return (
            f"the model does not take the example inputs, {given}{where}: {first_line(own)}{_dtypes(model, flat)}",
            own,
        )
    return reason


def _cloned(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def _dtypes(model: torch.nn.Module, flat: Sequence[Any]) -> str:
    """What to convert where the example's floats have another dtype than all weights; empty elsewhere."""
    weights = floating_dtypes(list(model.parameters()))
    given = floating_dtypes(flat)
    if len(weights) != 1 or not given or given <= weights:
        return ""
    (dtype,) = (dtype_text(each) for each in weights)
    return f"; its weights are {dtype}, so convert the example with .to(torch.{dtype}), or the model"


def floating_dtypes(values: Sequence[Any]) -> set[torch.dtype]:
    """Those of the floating tensors among values."""
    return {each.dtype for each in values if isinstance(each, torch.Tensor) and each.is_floating_point()}
