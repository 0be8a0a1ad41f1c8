"""Places as candidates want them: what works along one dimension gets rows of it, where strides allow that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from nhwc.inference.layout import Place, order_of
from nhwc.inference.native import Placed
from nhwc.inference.operations import Fused, Operation
from nhwc.inference.steps.registry import Candidate, Request, candidates
from nhwc.kernels.native import is_available


def requested(
    work: Operation,
    inputs: Sequence[Place],
    output: Place,
    fused: Fused,
    addend: Place | None,
    axis: int | None,
    threads: int,
    exact: bool,
) -> Request:
    """The request for an operation on places.

    axis: the dimension that products, softmax and layer norm work along; operands become (rows, axis) then, or stay as
    they are where the other dimensions cannot be merged.
    """
    operands = [output.placed(), *[each.placed() for each in inputs]]
    if addend is not None:
        operands.append(addend.placed())
    if axis is not None:
        operands = [_dense_at(each, axis) if len(each.shape) == len(output.shape) else each for each in operands]
        operands = _rows_along(operands, axis) or operands
    inner = operands[1 : 1 + len(inputs)]
    added = operands[-1] if addend is not None else None
    return Request(work, tuple(inner), operands[0], fused, added, threads, exact)


def steps_for(request: Request) -> Sequence[Candidate]:
    """Every candidate for a request; none where there is no compiled library, so that torch runs everything."""
    return candidates(request) if is_available() else ()


def _dense_at(operand: Placed, axis: int) -> Placed:
    """The same, with strides of sizes of one, which may be any, such that no other dimension passes for the axis."""
    strides = [
        stride if size != 1 else int(dim == axis)
        for dim, (size, stride) in enumerate(zip(operand.shape, operand.strides, strict=True))
    ]
    return replace(operand, strides=tuple(strides))


def _rows_along(operands: list[Placed], axis: int) -> list[Placed] | None:
    """All operands as (rows, axis), the other dimensions merged in the order in which the first one has them."""
    shape, strides = operands[0].shape, operands[0].strides
    if any(len(each.shape) != len(shape) for each in operands):
        return None
    order = [dim for dim in order_of(shape, strides) if dim != axis and shape[dim] != 1]
    merged = [_merged(each, order, axis) for each in operands]
    found = [each for each in merged if each is not None]
    return found if len(found) == len(operands) else None


def _merged(operand: Placed, order: list[int], axis: int) -> Placed | None:
    """One operand as (rows, axis); None where its dimensions do not lie one inside the other."""
    sizes, strides = operand.shape, operand.strides
    for outer, inner in pairwise(order):
        if strides[outer] != strides[inner] * sizes[inner]:
            return None
    rows = 1
    for dim in order:
        rows *= sizes[dim]
    step = strides[order[-1]] if order else sizes[axis]
    return replace(operand, shape=(rows, sizes[axis]), strides=(step, strides[axis]))
