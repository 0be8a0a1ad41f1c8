"""Linear operations with random epilogues by every candidate against float64, on slices of wider buffers."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import torch
import torch.nn.functional as F  # noqa: N812 the usual name
from inference.running import by_every_candidate, request

from nhwc.inference.native import Activation
from nhwc.inference.operations import Fused, Operation

_UNTOUCHED = 7.25
_ACTIVATIONS: dict[Activation, Callable[[torch.Tensor], torch.Tensor]] = {
    Activation.NONE: lambda t: t,
    Activation.CLAMP: lambda t: t.clamp(0, 6),
    Activation.SILU: F.silu,
}


def sliced(shape: tuple[int, ...], *, last: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """A buffer of random numbers and the channels 2 to C + 1 of it, as (N, C, *size), or as (..., C) with ``last``."""
    sizes = shape if last else (shape[0], *shape[2:], shape[1])
    buffer = torch.randn(*sizes[:-1], sizes[-1] + 5)
    channels = buffer[..., 2 : 2 + sizes[-1]]
    return buffer, channels if last else channels.movedim(-1, 1)


def outcomes(
    operation: Operation, x: torch.Tensor, sums: torch.Tensor, choose: Random, *, last: bool = False
) -> dict[str, float]:
    """Label → the greatest error, as a share of the greatest of ``sums``, the result in float64 before the epilogue.

    The epilogue and the number of threads are drawn; memory beside the output's channels is checked. last: the
    channels are the last dimension.
    """
    activation, addend_last = choose.choice(list(_ACTIVATIONS)), choose.random() < 0.5
    addend = sliced(tuple(sums.shape), last=last)[1] if choose.random() < 0.5 else None
    before, after = (0.0, 0.0) if addend is None else (0.0, addend) if addend_last else (addend, 0.0)
    exact = _ACTIVATIONS[activation](sums + before) + after
    buffer, y = sliced(tuple(sums.shape), last=last)
    buffer.fill_(_UNTOUCHED)
    fused = Fused(activation, 0.0, 6.0, addend_last=addend_last)
    threads = choose.choice([1, 2, 5])
    results = by_every_candidate(request(operation, [x], y, fused, addend, threads=threads), y)
    assert (buffer[..., :2] == _UNTOUCHED).all()
    assert (buffer[..., -3:] == _UNTOUCHED).all()
    return {label: _error(result, exact, sums) for label, result in results.items()}


def _error(result: torch.Tensor, exact: torch.Tensor, sums: torch.Tensor) -> float:
    if result.numel() == 0:
        return 0.0
    greatest = sums.abs().max().item() or 1.0
    return (result.double() - exact).abs().max().item() / greatest
