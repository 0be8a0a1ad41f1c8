"""Putting an arrangement on a model, in place, and taking it off: all of it or nothing."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TypeVar

from torch import nn
from torch.optim import Optimizer

from nhwc.conversion import convert, is_converted
from nhwc.conversion import restore as restore_formats
from nhwc.conversion.targets import convertible
from nhwc.errors import ModelError
from nhwc.optimization.arrangement import Arrangement
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
        # last: it undoes itself where it fails
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


def take_off(model: nn.Module, *, optimizer: Optimizer | Sequence[Optimizer] | None = None) -> bool:
    """Undo ``arrange`` and ``nhwc.convert``; whether there was anything. Raises ConversionError as ``restore`` does."""
    core = convertible(model)
    had_kernels = kernels_of(core) is not None
    if is_converted(core):
        restore_formats(core, optimizer=optimizer)
        unscope(core)
        return True
    unscope(core)
    return had_kernels
