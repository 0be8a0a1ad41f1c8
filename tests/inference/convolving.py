"""Convolutions by every candidate against float64, on slices of wider buffers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

import torch
import torch.nn.functional as F  # noqa: N812 the usual name
from inference.running import by_every_candidate, request

from nhwc.inference.native import Activation
from nhwc.inference.operations import Convolution, Fused

ACTIVATIONS: dict[Activation, Callable[[torch.Tensor], torch.Tensor]] = {
    Activation.NONE: lambda t: t,
    Activation.CLAMP: lambda t: t.clamp(0, 6),
    Activation.SILU: F.silu,
}
_UNTOUCHED = 7.0


@dataclass(frozen=True)
class Case:
    """x: (N, C, *size). addend: "" (none), "first" or "last"."""

    x: tuple[int, ...]
    outputs: int
    kernel: int = 3
    stride: int = 1
    padding: int = 1
    dilation: int = 1
    groups: int = 1
    bias: bool = True
    addend: str = ""
    activation: Activation = Activation.NONE
    threads: int = 2

    def varied(self, choose: Random) -> Case:
        """Another epilogue and number of threads."""
        return replace(
            self,
            bias=choose.random() < 0.7,
            addend=choose.choice(["", "first", "last"]),
            activation=choose.choice(list(ACTIVATIONS)),
            threads=choose.choice([1, 2, 5]),
        )


def errors(case: Case) -> dict[str, float]:
    """Label → the greatest error, as a share of the greatest sum of products; memory beside the slices is checked."""
    spatial = len(case.x) - 2
    convolve = F.conv2d if spatial == 2 else F.conv3d
    _, x = _sliced(case.x)
    weight = torch.randn(case.outputs, case.x[1] // case.groups, *[case.kernel] * spatial)
    bias = torch.randn(case.outputs) if case.bias else None
    sums = convolve(x.double(), weight.double(), None, case.stride, case.padding, case.dilation, case.groups)
    exact = sums if bias is None else sums + bias.double().view(-1, *[1] * spatial)
    buffer, y = _sliced(tuple(exact.shape), _UNTOUCHED)
    addend = _sliced(tuple(exact.shape))[1] if case.addend else None
    if addend is not None and case.addend == "first":
        exact = exact + addend.double()
    exact = ACTIVATIONS[case.activation](exact)
    if addend is not None and case.addend == "last":
        exact = exact + addend.double()
    operation = Convolution(
        weight, bias, *[(each,) * spatial for each in (case.stride, case.padding, case.dilation)], case.groups
    )
    fused = Fused(case.activation, 0.0, 6.0, addend_last=case.addend == "last")
    results = by_every_candidate(request(operation, [x], y, fused, addend, threads=case.threads), y)
    assert (buffer[..., :2] == _UNTOUCHED).all()
    assert (buffer[..., -3:] == _UNTOUCHED).all()
    return {label: _error(result, exact, sums) for label, result in results.items()}


def _sliced(shape: tuple[int, ...], fill: float | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """A buffer with five channels more, and the channels of it that have the shape."""
    wide = [shape[0], *shape[2:], shape[1] + 5]
    buffer = torch.randn(wide) if fill is None else torch.full(wide, fill)
    return buffer, buffer[..., 2 : 2 + shape[1]].movedim(-1, 1)


def _error(result: torch.Tensor, exact: torch.Tensor, sums: torch.Tensor) -> float:
    if result.numel() == 0:
        return 0.0
    greatest = sums.abs().max().item() or 1.0  # windows may lie in the padding alone
    return (result.double() - exact).abs().max().item() / greatest
