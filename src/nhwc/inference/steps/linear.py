"""Linear layers: the direct convolution's product, over the rows of the last dimension."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache, partial

import torch

from nhwc.inference.native import Placed, Rows, Step
from nhwc.inference.operations import Linear
from nhwc.inference.signature_text import dtype_text
from nhwc.inference.steps.packing import packed, registers
from nhwc.inference.steps.products import Blocking, Extent, Window, adds_alike, blockings, product_step, table_bytes
from nhwc.inference.steps.registry import Candidate, Request, algorithm

#: Dimensions before the last that the library can walk.
_MOST_LEADING = 4


@algorithm(Linear)
def linear(request: Request) -> Iterator[Candidate]:
    """(..., C) to (..., K), with up to four dimensions before the last; on narrow weights where they are allowed."""
    operation = request.operation
    assert isinstance(operation, Linear)
    tensors = [each for each in (request.inputs[0], request.output, request.addend) if each is not None]
    if any(each.shape[-1] > 1 and each.strides[-1] != 1 for each in tensors):
        return
    if len(request.output.shape) - 1 > _MOST_LEADING or not adds_alike(request):
        return
    if operation.narrow is not None and not request.exact:
        for vectors in (4, 2) if registers() == 32 else (2, 1):
            label = f"narrow {dtype_text(operation.narrow)} vectors={vectors}"
            yield Candidate(label, partial(_build_narrow, request, operation, operation.narrow, vectors, label))
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


def _build_narrow(request: Request, operation: Linear, narrow: torch.dtype, vectors: int, label: str) -> Step:
    """linear_narrow.cpp: few rows, weights of 16 bits."""
    weight = packed(operation.weight.detach().float().t()[None], vectors).to(narrow)
    # the step cuts rows, panels and depth itself
    blocking = Blocking(vectors=vectors, tall=0, rows=0, panels=0, depth=0)
    own = (int(narrow == torch.float16),)
    return product_step(
        "linear_narrow", label, request, weight, operation.bias, Window(), blocking, 0, own=own, rows_of=leading_rows
    )
