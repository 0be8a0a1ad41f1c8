"""Group, instance and layer norm by ``engine/norm_group.cpp`` and ``engine/norm_layer.cpp``."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from math import prod

import torch

from nhwc.inference.native import ABSOLUTE, NOTHING, Epilogue, Placed, Ref, Rows, Step
from nhwc.inference.operations import Normalization
from nhwc.inference.steps.channels import pair
from nhwc.inference.steps.registry import Candidate, Request, algorithm
from nhwc.inference.steps.strided import dense_rows

#: Floats of a picture that are worth a task, and the fewest pixels of one.
_FLOATS_PER_TASK = 1 << 15
_PIXELS_PER_TASK = 32


class Groups(ctypes.Structure):
    """GroupNorm of norm_group.cpp."""

    _fields_ = [
        ("x", Rows),
        ("y", Rows),
        ("epilogue", Epilogue),
        ("weight", Ref),
        ("bias", Ref),
        ("groups", ctypes.c_int64),
        ("task_pixels", ctypes.c_int64),
        ("eps", ctypes.c_double),
    ]


class Layer(ctypes.Structure):
    """LayerNorm of norm_layer.cpp."""

    _fields_ = [("x", Rows), ("y", Rows), ("weight", Ref), ("bias", Ref), ("eps", ctypes.c_double)]


def _affine(norm: Normalization) -> tuple[list[Ref], tuple[torch.Tensor, ...]]:
    tensors = [None if each is None else each.contiguous() for each in (norm.weight, norm.bias)]
    refs = [Ref(*NOTHING) if each is None else Ref(ABSOLUTE, each.data_ptr()) for each in tensors]
    return refs, tuple(each for each in tensors if each is not None)


@algorithm(Normalization)
def of_groups(request: Request) -> Iterator[Candidate]:
    """Group and instance norm in channels last, with any activation but no addend."""
    norm, [x], y = request.operation, request.inputs, request.output
    assert isinstance(norm, Normalization)
    if norm.kind == "layer" or request.addend is not None or x.shape != y.shape:
        return
    rows = pair(x, y)
    if rows is not None and x.shape[1] % norm.groups == 0:
        yield Candidate("norm_group", lambda: _group_step(norm, request, rows))


def _group_step(norm: Normalization, request: Request, rows: tuple[Rows, Rows]) -> Step:
    samples, channels, *spatial = request.output.shape
    refs, constants = _affine(norm)
    fused = request.fused
    slope = None
    if fused.slope is not None:
        constants = (*constants, fused.slope.contiguous())
        slope = Placed.constant(constants[-1])
    epilogue = Epilogue.of(fused.activation, fused.lo, fused.hi, slope)
    pixels = max(_PIXELS_PER_TASK, _FLOATS_PER_TASK // max(channels, 1))
    tasks = -(-prod(spatial) // pixels)
    scratch = samples * channels * (2 * 8 * tasks + 4 * 4)
    parameters = Groups(*rows, epilogue, *refs, norm.groups, pixels, norm.eps)
    return Step("norm_group", parameters, "norm_group", scratch, constants)


@algorithm(Normalization)
def of_layers(request: Request) -> Iterator[Candidate]:
    """Layer norm over the densest dimension, the same of input and result. No epilogues."""
    norm, [x], y = request.operation, request.inputs, request.output
    assert isinstance(norm, Normalization)
    rows = dense_rows(x, y)
    if norm.kind != "layer" or request.has_epilogue or rows is None:
        return
    refs, constants = _affine(norm)
    parameters = Layer(*rows, *refs, norm.eps)
    yield Candidate("norm_layer", lambda: Step("norm_layer", parameters, "norm_layer", constants=constants))
