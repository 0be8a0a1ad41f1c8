"""Linear layers: the direct convolution's product, over the rows of the last dimension."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache, partial

import torch

from nhwc.inference.native import Placed, Rows, Step
from nhwc.inference.operations import Linear
from nhwc.inference.steps.packing import packed
from nhwc.inference.steps.products import Blocking, Extent, Window, adds_alike, blockings, product_step, table_bytes
from nhwc.inference.steps.registry import Candidate, Request, algorithm

#: Dimensions before the last that the library can walk.
_MOST_LEADING = 4


@algorithm(Linear)
def linear(request: Request) -> Iterator[Candidate]:
    """(..., C) to (..., K), with up to four dimensions before the last."""
    operation = request.operation
    assert isinstance(operation, Linear)
    tensors = [each for each in (request.inputs[0], request.output, request.addend) if each is not None]
    if any(each.shape[-1] > 1 and each.strides[-1] != 1 for each in tensors):
        return
    if len(request.output.shape) - 1 > _MOST_LEADING or not adds_alike(request):
        return
    columns, depth = operation.weight.shape
    weights = cache(partial(packed, operation.weight.detach().float().t()[None], zeros=depth))
    for blocking in blockings(Extent(math.prod(request.output.shape[:-1]), columns, depth), request.threads):
        yield Candidate(f"linear {blocking.label}", partial(_build, request, operation, blocking, weights))


def leading_rows(placed: Placed | None) -> Rows:
    """(..., C) as rows: the dimensions before the last are picture, depth, height and width, from the right."""
    if placed is None:
        return Rows.none()
    missing = _MOST_LEADING + 1 - len(placed.shape)
    sizes = (*[1] * missing, *placed.shape)
    strides = (*[0] * missing, *placed.strides)
    return Rows(placed.ref, *sizes, *strides)


def _build(request: Request, operation: Linear, blocking: Blocking, weights: Callable[[int], torch.Tensor]) -> Step:
    scratch = request.threads * table_bytes(1, blocking.rows)
    return product_step(
        "conv_direct",
        f"linear {blocking.label}",
        request,
        weights(blocking.vectors),
        operation.bias,
        Window(),
        blocking,
        scratch,
        rows_of=leading_rows,
    )
