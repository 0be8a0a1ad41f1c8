"""Putting an arrangement on a model, in place, and taking it off: all of it or nothing."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TypeVar

from torch import nn
from torch.optim import Optimizer

from nhwc.conversion import convert, convert_each, is_converted
from nhwc.conversion import restore as restore_formats
from nhwc.conversion.targets import convertible
from nhwc.errors import ModelError
from nhwc.optimization.arrangement import Arrangement
from nhwc.optimization.boundaries import hang_moves, has_moves, take_moves_off, weight_formats
from nhwc.optimization.scope import kernels_of, scope, unscope
from nhwc.strides import CONTIGUOUS

ModelT = TypeVar("ModelT", bound=nn.Module)


def arrange(model: nn.Module, arrangement: Arrangement, optimizer: Sequence[Optimizer] = ()) -> None:
    """Put formats and kernels on ``model``, in place; its optimizers follow. torch.compile and the engine are left out.

    Raises ConversionError where the model refuses; it is then as before, also after a KeyboardInterrupt.
    """
    core = convertible(model)
    with ExitStack() as undo:
        if arrangement.kernels is not None:
            scope(core, arrangement.kernels, undo)
        if arrangement.plans:
            hang_moves(core, arrangement.plans, undo)
        # last: it undoes itself where it fails
        if arrangement.plans:
            convert_each(core, weight_formats(core, arrangement.plans[0]), optimizer=list(optimizer))
            undo.pop_all()
            return
        convert(
            core,
            CONTIGUOUS if arrangement.format == CONTIGUOUS else "auto",
            optimizer=list(optimizer),
            inputs=True,
        )
        undo.pop_all()


def rearranged(model: ModelT, arrangement: Arrangement) -> ModelT:
    """A copy of ``model`` with the arrangement put on it. Raises ModelError where the model cannot be copied."""
    try:
        copied = copy.deepcopy(model)
    except (RuntimeError, TypeError, ValueError, NotImplementedError, AttributeError) as error:
        raise ModelError(
            f"the model cannot be copied ({' '.join(str(error).split())[:200]}), and every candidate runs a "
            "copy.deepcopy of it; run a lazy model once before, and keep locks and outputs of a forward pass out of it"
        ) from error
    arrange(copied, arrangement)
    return copied


def is_arranged(model: nn.Module) -> bool:
    """Whether ``model`` has kernels or conversions of an arrangement; formats alone can be changed as they are."""
    core = convertible(model)
    return kernels_of(core) is not None or has_moves(core)


def take_off(model: nn.Module, *, optimizer: Optimizer | Sequence[Optimizer] | None = None) -> bool:
    """Undo ``arrange`` and ``nhwc.convert``; whether there was anything. Raises ConversionError as ``restore`` does."""
    core = convertible(model)
    converted = is_converted(core)
    if converted:  # first: what it refuses leaves the model as it is
        restore_formats(core, optimizer=optimizer)
    had_moves, had_kernels = take_moves_off(core), kernels_of(core) is not None
    unscope(core)
    return converted or had_moves or had_kernels
