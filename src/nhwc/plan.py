"""The frozen data of a plan: which modules of a model run in which memory format, what that costs, and what it is for.

A format is "contiguous" or "channels_last"; for tensors of rank 5 the second means channels last 3-D. ``ms`` are
milliseconds of one step, ``nbytes`` bytes of one tensor.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from nhwc.model import Environment
from nhwc.strides import CHANNELS_LAST, CONTIGUOUS

#: Every format that a module can be planned in.
FORMATS = (CONTIGUOUS, CHANNELS_LAST)

BEFORE, AFTER = "before", "after"


@dataclass(frozen=True, slots=True)
class FormatTimes:
    """Milliseconds in each format."""

    contiguous: float
    channels_last: float

    def of(self, name: str) -> float:
        """Those in the format of that name; KeyError for any other name."""
        return {CONTIGUOUS: self.contiguous, CHANNELS_LAST: self.channels_last}[name]


@dataclass(frozen=True, slots=True)
class Placement:
    """A module and the format that its own operators run in, forward and backward.

    module: its path, "" for the model itself; module_type: its class name. A module with children stands here for the
        operators that it calls outside of them.
    calls: operator calls that the format decides about. ms: of all of them, in each format.
    estimated: whether any of it was estimated from bytes rather than measured. why: one sentence.
    """

    module: str
    module_type: str
    format: str
    calls: int
    ms: FormatTimes
    estimated: bool
    why: str


@dataclass(frozen=True, slots=True)
class Move:
    """The conversion of one tensor of rank 4 or 5 to ``format`` at the boundary of a module.

    where: "before" converts the tensor among the module's inputs, "after" the one among its outputs; module "" with
        "before" is an input of the model. In training a move brings the gradient back to the other format.
    module: path of the module that the hook stands on.
    nbytes: of the tensor. ms: of all its conversions in one step, with those of its gradient in training.
    calls: conversions in one step. tensor: its number in this plan; the moves of one tensor to one format are one
        conversion, whose result the first keeps for the others: theirs have 0 ms and 0 calls.
    """

    where: str
    module: str
    format: str
    nbytes: int
    ms: float
    calls: int
    tensor: int


@dataclass(frozen=True, slots=True)
class PlanInput:
    """A tensor that the model was called with. name: "input 0", "input x" as a trace names it."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    device: str


@dataclass(frozen=True, slots=True)
class Predicted:
    """Milliseconds of one step: everything contiguous, everything channels last, and as planned."""

    contiguous: float
    channels_last: float
    planned: float

    @property
    def gain(self) -> float:
        """How many times faster the plan is than the better of the two plain formats; 1 for a step without calls."""
        return min(self.contiguous, self.channels_last) / self.planned if self.planned else 1.0


@dataclass(frozen=True, slots=True)
class Plan:
    """Formats for the modules of one model, for one call of it on one machine.

    target: the model's name. training: with a backward pass, in training mode. amp: the autocast dtype, "" for none.
    inputs: the tensors that it was planned for; keywords: names of the keyword arguments.
    tree: digest of the model's module paths, types and parameter shapes (``tree_digest``).
    kernels: those of nhwc.kernels that were on when the operators were measured, by name.
    """

    target: str
    environment: Environment
    training: bool
    amp: str
    inputs: tuple[PlanInput, ...]
    keywords: tuple[str, ...]
    tree: str
    placements: tuple[Placement, ...]
    moves: tuple[Move, ...]
    kernels: tuple[str, ...]
    predicted: Predicted

    @property
    def format(self) -> str | None:
        """The one format of all placements, None where they differ or there are none."""
        formats = {placement.format for placement in self.placements}
        return formats.pop() if len(formats) == 1 else None

    @property
    def estimated(self) -> bool:
        """Whether any part of it was estimated rather than measured."""
        return any(placement.estimated for placement in self.placements)


def are_mixed(plans: Iterable[Plan]) -> bool:
    """Whether plans of one model, for several shapes of inputs, take more than one format between them.

    A plan without placements takes none.
    """
    formats = {plan.format for plan in plans if plan.placements}
    return None in formats or len(formats) > 1


class Module(Protocol):
    """What is read of a module for the digest; torch.nn.Module has it."""

    def named_parameters(self, prefix: str = ..., recurse: bool = ...) -> Iterable[tuple[str, Any]]: ...


def tree_digest(named_modules: Iterable[tuple[str, Module]]) -> str:
    """16 hexadecimal digits that are equal for equal module paths, types and parameter shapes.

    named_modules: as ``model.named_modules()`` gives them.
    """
    digest = hashlib.sha256()
    for path, module in named_modules:
        shapes = [(name, list(parameter.shape)) for name, parameter in module.named_parameters(recurse=False)]
        digest.update(json.dumps([path, type(module).__name__, shapes]).encode())
    return digest.hexdigest()[:16]


def why_stale(
    plan: Plan,
    *,
    environment: Environment,
    training: bool,
    amp: str,
    inputs: Sequence[PlanInput],
    keywords: Sequence[str],
    tree: str,
) -> str | None:
    """One sentence on why ``plan`` does not hold for this model and call; None where it does."""
    if plan.tree != tree:
        return "it was made for another module tree (paths, types or parameter shapes differ)"
    if plan.training != training:
        return f"it was made for {_mode(plan.training)}, and this is {_mode(training)}"
    if plan.amp != amp:
        return f"it was made with autocast {plan.amp or 'off'}, and this is with {amp or 'off'}"
    for name in ("torch", "device", "processor", "threads"):
        then, now = getattr(plan.environment, name), getattr(environment, name)
        if then != now:
            return f"it was made with {name} {then}, and this is {name} {now}"
    if plan.keywords != tuple(keywords):
        return f"it was made for the keywords {list(plan.keywords)}, and this call has {list(keywords)}"
    return _why_inputs_differ(plan.inputs, tuple(inputs))


def _why_inputs_differ(planned: tuple[PlanInput, ...], given: tuple[PlanInput, ...]) -> str | None:
    if len(planned) != len(given):
        return f"it was made for {len(planned)} input tensors, and this call has {len(given)}"
    for then, now in zip(planned, given, strict=True):
        for name in ("shape", "dtype", "device"):
            if getattr(then, name) != getattr(now, name):
                return f"it was made for {then.name} of {name} {getattr(then, name)}, and this is {getattr(now, name)}"
    return None


def _mode(training: bool) -> str:
    return "training" if training else "inference"
