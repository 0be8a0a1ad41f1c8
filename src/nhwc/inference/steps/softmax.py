"""Softmax and its logarithm by ``engine/softmax.cpp``."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

from nhwc.inference.native import Rows, Step
from nhwc.inference.operations import Softmax
from nhwc.inference.steps.registry import Candidate, Request, algorithm
from nhwc.inference.steps.strided import dense_rows


class Parameters(ctypes.Structure):
    """Softmax of softmax.cpp."""

    _fields_ = [("x", Rows), ("y", Rows), ("is_log", ctypes.c_int64)]


@algorithm(Softmax)
def of_rows(request: Request) -> Iterator[Candidate]:
    """Over the densest dimension, the same of input and result. No epilogues."""
    assert isinstance(request.operation, Softmax)
    rows = dense_rows(request.inputs[0], request.output)
    if rows is not None and not request.has_epilogue:
        parameters = Parameters(*rows, int(request.operation.log))
        yield Candidate("softmax", lambda: Step("softmax", parameters, "softmax"))
