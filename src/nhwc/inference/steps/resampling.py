"""Interpolation to another size by ``engine/resample.cpp``.

The positions are those of ATen's UpSample.h (torch 2.11 to 2.14): nearest in float32, as there, since it rounds down;
linear in float64, where float32 would only lose digits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from nhwc.inference.native import ABSOLUTE, Ref, Rows, Step
from nhwc.inference.operations import Resample
from nhwc.inference.steps.channels import pair
from nhwc.inference.steps.registry import Candidate, Request, algorithm


class Axis(ctypes.Structure):
    """Axis of resample.cpp."""

    _fields_ = [("low", Ref), ("high", Ref), ("share", Ref)]


class Parameters(ctypes.Structure):
    """Resample of resample.cpp."""

    _fields_ = [("x", Rows), ("y", Rows), ("is_linear", ctypes.c_int64), ("axis", Axis * 3)]


@dataclass(frozen=True)
class Positions:
    """Per output: the inputs before and behind it, int64, and the share of the latter, float32."""

    low: torch.Tensor
    high: torch.Tensor
    share: torch.Tensor

    @property
    def axis(self) -> Axis:
        return Axis(*[Ref(ABSOLUTE, each.data_ptr()) for each in self.tensors])

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        return self.low, self.high, self.share


def _single(value: float) -> torch.Tensor:
    """A number in float32, in which torch computes the positions of nearest neighbours."""
    return torch.tensor(value, dtype=torch.float32, device="cpu")


def nearest(inputs: int, outputs: int, scale: float | None) -> Positions:
    """scale: as the user gave it, or None for that of the sizes.

    >>> nearest(3, 6, None).low.tolist()
    [0, 0, 1, 1, 2, 2]
    """
    step = _single(1.0 / scale) if scale else _single(float(inputs)) / outputs
    steps = torch.arange(outputs, device="cpu").float()
    low = (steps * step).floor().long().clamp_(max=inputs - 1)
    return Positions(low, low, torch.zeros(outputs, dtype=torch.float32, device="cpu"))


def linear(inputs: int, outputs: int, scale: float | None, align_corners: bool) -> Positions:
    """scale: as the user gave it, or None for that of the sizes; without meaning where the corners are aligned.

    >>> linear(2, 4, None, False).share.tolist()
    [0.0, 0.25, 0.75, 0.0]
    """
    steps = torch.arange(outputs, dtype=torch.float64, device="cpu")
    if outputs == inputs:
        places = steps
    elif align_corners:
        places = steps * ((inputs - 1) / (outputs - 1) if outputs > 1 else 0.0)
    else:
        places = ((steps + 0.5) * (1.0 / scale if scale else inputs / outputs) - 0.5).clamp_(min=0.0)
    low = places.long().clamp_(max=inputs - 1)
    high = (low + 1).clamp_(max=inputs - 1)
    share = (places - low).clamp_(0.0, 1.0).float()
    share[high == low] = 0.0
    return Positions(low, high, share)


@algorithm(Resample)
def interpolated(request: Request) -> Iterator[Candidate]:
    """One to three spatial dimensions in channels last. No epilogues."""
    operation, [x], y = request.operation, request.inputs, request.output
    assert isinstance(operation, Resample)
    rows = pair(x, y)
    if rows is None or request.has_epilogue or len(x.shape) != len(y.shape) or not all((*x.shape[2:], *y.shape[2:])):
        return
    if len(operation.scales) == len(x.shape) - 2:
        yield Candidate(f"resample {operation.mode}", lambda: _step(operation, request, rows))


def _step(operation: Resample, request: Request, rows: tuple[Rows, Rows]) -> Step:
    is_linear = operation.mode == "linear"
    sizes = zip(request.inputs[0].shape[2:], request.output.shape[2:], operation.scales, strict=True)
    found = [linear(*each, operation.align_corners) if is_linear else nearest(*each) for each in sizes]
    found = [*[nearest(1, 1, None)] * (3 - len(found)), *found]
    constants = tuple(tensor for each in found for tensor in each.tensors)
    parameters = Parameters(*rows, int(is_linear), (Axis * 3)(*[each.axis for each in found]))
    return Step("resample", parameters, f"resample {operation.mode}", constants=constants)
