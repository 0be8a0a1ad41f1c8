"""Requests run on tensors as they lie, by every candidate, for tests of the engine's steps."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

from nhwc.inference.native import ALIGNMENT_BYTES, Placed, Program, Step
from nhwc.inference.operations import Fused, Operation
from nhwc.inference.steps.registry import Candidate, Request, candidates


def request(
    operation: Operation,
    inputs: Sequence[torch.Tensor],
    output: torch.Tensor,
    fused: Fused = Fused(),  # noqa: B008 frozen
    addend: torch.Tensor | None = None,
    *,
    threads: int = 2,
    exact: bool = False,
) -> Request:
    """The request for tensors by their addresses; the caller keeps them alive."""
    placed = tuple(Placed.constant(each) for each in inputs)
    added = None if addend is None else Placed.constant(addend)
    return Request(operation, placed, Placed.constant(output), fused, added, threads, exact)


def run_step(step: Step, threads: int = 2) -> None:
    """Run one step whose tensors are absolute addresses, with scratch full of NaN."""
    scratch = torch.full((step.scratch_bytes // 4 + 2 * ALIGNMENT_BYTES,), float("nan"))
    address = -(-scratch.data_ptr() // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    Program([step]).run((ctypes.c_void_p * 2)(None, None), address, threads)


def by_every_candidate(asked: Request, output: torch.Tensor) -> dict[str, torch.Tensor]:
    """Label → what that candidate writes into ``output``, which is filled with NaN before each."""
    results = {}
    found: Sequence[Candidate] = candidates(asked)
    for candidate in found:
        output.fill_(float("nan"))
        step = candidate.build()
        run_step(step, asked.threads)
        results[candidate.label] = output.clone()
    return results


def relative_error(result: torch.Tensor, exact: torch.Tensor) -> float:
    """The greatest difference from a float64 result, as a share of its greatest value."""
    scale = exact.abs().max().item() or 1.0
    return (result.double() - exact).abs().max().item() / scale
