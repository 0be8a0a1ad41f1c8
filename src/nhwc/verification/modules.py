"""The first module whose outputs differ although its inputs agree: for what no operator call shows, such as numpy code
or a library that reads addresses."""

from __future__ import annotations

import contextlib
import inspect
import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from nhwc.model import Source
from nhwc.variants import Setup
from nhwc.verification.distance import both, distance, finite
from nhwc.verification.run import named_tensors

#: How many times further off its outputs must be than its inputs, counted in roundings where those agree exactly.
_JUMP = 1000.0


@dataclass(frozen=True)
class Visit:
    """One run of one module, with copies of what went in and came out."""

    path: str
    module: nn.Module
    inputs: tuple[torch.Tensor, ...]
    outputs: tuple[torch.Tensor, ...]


@contextlib.contextmanager
def visits_of(setup: Setup, visits: list[Visit]) -> Iterator[None]:
    """Note every module that ends a forward pass inside the block, innermost first."""
    paths = {id(module): name for name, module in setup.model.named_modules()}

    def note(module: nn.Module, inputs: Any, output: Any) -> None:
        if id(module) in paths:
            visits.append(Visit(paths[id(module)], module, _copies(inputs), _copies(output)))

    handle = register_module_forward_hook(note)
    try:
        yield
    finally:
        handle.remove()


def first_difference(contiguous: list[Visit], variant: list[Visit], nudged: list[Visit]) -> Visit | None:
    """The first visit of the variant that turns inputs that agree into outputs that do not.

    Outputs count against everything seen before, so that a module is not blamed for what its parts amplify bit by bit,
    and against ``nudged``, a contiguous run whose values were moved by roundings. Where the inputs of a module jump,
    the module around it is the one: it changed them between its parts.
    """
    furthest = 0.0
    for place, (ours, theirs) in enumerate(zip(contiguous, variant, strict=False)):
        if ours.path != theirs.path:
            return None
        rounding = max((torch.finfo(t.dtype).eps for t in ours.outputs if t.is_floating_point()), default=0.0)
        moved = nudged[place] if place < len(nudged) and nudged[place].path == ours.path else ours
        before, after = _furthest(ours.inputs, theirs.inputs), _furthest(ours.outputs, theirs.outputs)
        allowed = _JUMP * max(furthest, rounding)
        if before > max(allowed, _JUMP * _furthest(ours.inputs, moved.inputs)):
            return _around(theirs, place, contiguous, variant, allowed)
        if after > _JUMP * max(furthest, before, rounding, _furthest(ours.outputs, moved.outputs)):
            return theirs
        furthest = max(furthest, before, after)
    return None


def _around(inner: Visit, place: int, contiguous: list[Visit], variant: list[Visit], allowed: float) -> Visit:
    """The innermost module around ``inner`` whose own inputs still agree: those around it end after it."""
    for ours, theirs in zip(contiguous[place + 1 :], variant[place + 1 :], strict=False):
        encloses = theirs.path == "" or inner.path.startswith(f"{theirs.path}.")
        if encloses and _furthest(ours.inputs, theirs.inputs) <= allowed:
            return theirs
    return inner


def source_of(module: nn.Module) -> Source | None:
    """Where the forward method of a module is written."""
    forward = type(module).forward
    try:
        file, (_, line) = inspect.getsourcefile(forward), inspect.getsourcelines(forward)
    except (OSError, TypeError):
        return None
    return Source(file or "", line, linecache.getline(file or "", line).strip(), forward.__qualname__)


def _copies(value: Any) -> tuple[torch.Tensor, ...]:
    return tuple(tensor.detach().clone() for _, tensor in named_tensors(value))


def _furthest(ours: tuple[torch.Tensor, ...], theirs: tuple[torch.Tensor, ...]) -> float:
    if len(ours) != len(theirs):
        return float("inf")
    found = 0.0
    for a, b in zip(ours, theirs, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return float("inf")
        found = max(found, distance(b, a, both(finite(a), finite(b))).rms)
    return found
