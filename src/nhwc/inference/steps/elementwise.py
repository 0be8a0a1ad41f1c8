"""Chains of pointwise operations by the interpreter of ``engine/elementwise.cpp``."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import torch

from nhwc.inference.native import Activation, Placed, Rows, Step
from nhwc.inference.operations import Elementwise, Term
from nhwc.inference.steps.chains import MOST_INPUTS, MOST_INSTRUCTIONS, Chain, Instruction, chain_of
from nhwc.inference.steps.registry import Candidate, Request, algorithm
from nhwc.inference.steps.strided import MOST, Collapsed, broadcast, collapsed, is_overlapping

#: Floats from one block to the next, as elementwise.cpp has it.
_PITCH = 1360


class Parameters(ctypes.Structure):
    """Elementwise of elementwise.cpp."""

    _fields_ = [
        ("y", Rows),
        ("inputs", ctypes.c_int64),
        ("instructions", ctypes.c_int64),
        ("registers", ctypes.c_int64),
        ("input", Rows * MOST_INPUTS),
        ("code", Instruction * MOST_INSTRUCTIONS),
    ]


@algorithm(Elementwise)
def interpreted(request: Request) -> Iterator[Candidate]:
    """One pass over all inputs. An epilogue becomes terms of the chain. Not over eight inputs or five dimensions."""
    assert isinstance(request.operation, Elementwise)
    terms, inputs, constants = _with_epilogue(request)
    strides = [broadcast(each, request.output.shape) for each in inputs]
    if len(inputs) > MOST_INPUTS or is_overlapping(request.output):
        return
    fitting = [each for each in strides if each is not None]
    if len(fitting) < len(inputs):
        return
    view = collapsed(request.output.shape, request.output.strides, *fitting)
    if len(view.sizes) > MOST:
        return
    chain = chain_of(terms, [len(view.sizes) > 1 and of[-2] == 0 for of in view.strides[1:]])
    if chain is not None:
        yield Candidate("elementwise", lambda: _step(request, inputs, view, chain, constants))


def _with_epilogue(request: Request) -> tuple[tuple[Term, ...], tuple[Placed, ...], tuple[torch.Tensor, ...]]:
    """The chain with its epilogue as terms; its inputs, and which of them are constants."""
    assert isinstance(request.operation, Elementwise)
    terms, inputs, fused = list(request.operation.terms), list(request.inputs), request.fused
    constants: tuple[torch.Tensor, ...] = ()

    def then(kind: str, placed: Placed | None = None, *, lo: float = 0.0, hi: float = 0.0) -> None:
        result: tuple[int, ...] = (len(terms) - 1,)
        if placed is not None:
            terms.append(Term("input", index=len(inputs)))
            inputs.append(placed)
            result = (*result, len(terms) - 1)
        activation = fused.activation if kind == "activation" else Activation.NONE
        terms.append(Term(kind, result, activation=activation, lo=lo, hi=hi))

    if request.addend is not None and not fused.addend_last:
        then("add", request.addend)
    if fused.activation != Activation.NONE:
        slope = None
        if fused.activation == Activation.PRELU:
            assert fused.slope is not None
            constants = (fused.slope.contiguous(),)
            rank = max(len(request.output.shape), 2)
            slope = Placed.constant(constants[0].view(-1, *[1] * (rank - 2)))
        then("activation", slope, lo=fused.lo, hi=fused.hi)
    if request.addend is not None and fused.addend_last:
        then("add", request.addend)
    return tuple(terms), tuple(inputs), constants


def _step(
    request: Request, inputs: tuple[Placed, ...], view: Collapsed, chain: Chain, constants: tuple[torch.Tensor, ...]
) -> Step:
    rows = [view.rows(tensor, placed) for tensor, placed in enumerate((request.output, *inputs))]
    code = (Instruction * MOST_INSTRUCTIONS)(*chain.instructions)
    padded = (Rows * MOST_INPUTS)(*rows[1:])
    counts = len(inputs), len(chain.instructions), chain.registers
    scratch = (len(inputs) + chain.registers + 1) * _PITCH * 4 * request.threads
    return Step("elementwise", Parameters(rows[0], *counts, padded, code), "elementwise", scratch, constants)
