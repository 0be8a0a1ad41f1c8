"""The verb restore: what optimize and convert did to a model is undone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from torch import nn
from torch.optim import Optimizer

from nhwc.api.remembering import forget
from nhwc.conversion.targets import convertible
from nhwc.errors import ConversionError
from nhwc.optimization import take_off

ModelT = TypeVar("ModelT", bound=nn.Module)


def restore(model: ModelT, *, optimizer: Optimizer | Sequence[Optimizer] | None = None) -> ModelT:
    """Undo ``optimize`` and ``convert``: every parameter and buffer gets the strides it had before, values as they are.

    Gradients and the state of the optimizers that ``convert`` or ``optimize`` was given (or of ``optimizer``) follow;
    doors, hooks and kernels go. Works on a deep copy and on a model unpickled whole as well: what has to be known
    travels in the model. Layers added since are left alone. Parts that were converted on their own are restored first,
    in reverse order.

    Raises ConversionError for a model that was neither converted nor optimized, and where ``convert`` would.

    >>> from nhwc.conversion import convert
    >>> model = nn.Conv2d(3, 8, 3)
    >>> restore(convert(model)).weight.stride()
    (27, 9, 3, 1)
    """
    core = convertible(model)
    changed = take_off(core, optimizer=optimizer)
    if not (forget(core) or changed):
        raise ConversionError(
            f"this {type(core).__name__} was neither converted nor optimized, there is nothing to restore; pass the "
            "module that convert() or optimize() took"
        )
    return model
