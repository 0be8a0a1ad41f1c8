"""A conversion for the time of a ``with`` block, without record, hooks or optimizers; the old memory comes back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch import nn

from nhwc.conversion.moves import apply
from nhwc.conversion.plan import plan_conversion
from nhwc.conversion.targets import convertible


@contextlib.contextmanager
def converted(model: nn.Module, memory_format: str = "auto") -> Iterator[None]:
    """``model`` with its weights in ``memory_format`` inside the block; afterwards the very memory it had before.

    Values written to converted parameters inside the block are dropped with them. An optimizer must not step inside:
    its state does not follow. Raises ConversionError as ``convert`` does, with the model untouched.
    """
    plan = plan_conversion(convertible(model), memory_format, ())
    with contextlib.ExitStack() as undo:
        apply(plan.moves, undo)
        yield
