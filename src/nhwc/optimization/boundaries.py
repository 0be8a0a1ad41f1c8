"""Hooks at modules' boundaries that move tensors between formats, as plans say.

They need no trace, so that models that cannot be traced have them too, and they are plain picklable objects, which
``copy.deepcopy`` and ``torch.save`` carry along. A conversion is an operator as any other: gradients come back through
it in the other format. Taking hooks off means finding them in a module's hook dictionaries, whose names are private:
read from torch 2.11 to 2.14.

A model may have several plans, for several shapes of its inputs; the first is for all shapes that have none.
"""

from __future__ import annotations

import weakref
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

from nhwc.conversion import bring
from nhwc.errors import ConversionError
from nhwc.plan import AFTER, BEFORE, Move, Plan
from nhwc.strides import CHANNELS_LAST, CONTIGUOUS

Shapes = tuple[tuple[int, ...], ...]


@dataclass(eq=False)
class _Kept:
    """What a tensor was converted to, for the readers that have yet to come. left: how many of them there are.

    It goes with the last reader, or with its source.
    """

    source: weakref.ref[torch.Tensor]
    version: int
    format: str
    result: torch.Tensor
    left: int


@dataclass(eq=False)
class Route:
    """What the hooks of one model share. plans: shapes → the number of their plan. active: of the running call.

    kept: conversions that other modules of this call read too.
    """

    plans: dict[Shapes, int]
    active: int = 0
    kept: list[_Kept] = field(default_factory=list)

    def __getstate__(self) -> dict[str, Any]:
        return {"plans": self.plans, "active": 0, "kept": []}

    def take(self, tensor: torch.Tensor, memory_format: str) -> torch.Tensor | None:
        """The tensor in that format, where an earlier reader has converted it and nobody has written to it since."""
        for each in self.kept:
            if each.source() is tensor and each.format == memory_format and each.version == tensor._version:
                each.left -= 1
                if each.left <= 0:  # not remove: a call in another thread may have dropped it meanwhile
                    self.kept[:] = [other for other in self.kept if other is not each]
                return each.result
        return None

    def keep(self, tensor: torch.Tensor, memory_format: str, result: torch.Tensor, readers: int) -> None:
        """Keep what ``tensor`` was converted to, for so many readers."""
        kept = self.kept

        def gone(source: weakref.ref[torch.Tensor]) -> None:
            kept[:] = [each for each in kept if each.source is not source]

        kept.append(_Kept(weakref.ref(tensor, gone), tensor._version, memory_format, result, readers))


@dataclass(eq=False)
class MoveHook:
    """A hook on one module. formats: number of a plan → the format of all pictures and volumes that pass there.

    readers: number of a plan → how many further modules read what is converted here.
    """

    route: Route
    formats: dict[int, str]
    readers: dict[int, int]

    def moved(self, values: Any) -> Any:
        """Everything in ``values`` in the format of the plan that is active."""
        memory_format = self.formats.get(self.route.active)
        if memory_format is None:
            return values
        wanted = CONTIGUOUS if memory_format == CONTIGUOUS else "auto"
        readers = self.readers.get(self.route.active, 0)
        # a compiler computes equal conversions once by itself
        if not readers or torch.compiler.is_compiling():
            return bring(values, wanted)
        return bring(tree_map(lambda value: self._shared(value, wanted, readers), values), wanted)

    def _shared(self, value: Any, wanted: str, readers: int) -> Any:
        # a tensor of an inference has no version
        if not isinstance(value, torch.Tensor) or value.is_inference():
            return value
        known = self.route.take(value, wanted)
        if known is not None:
            return known
        result = cast(torch.Tensor, bring(value, wanted))
        if result is not value:
            self.route.keep(value, wanted, result, readers)
        return result


class MoveBefore(MoveHook):
    """A forward pre-hook that takes keyword arguments."""

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        del module
        return self.moved(args), self.moved(kwargs)


class MoveAfter(MoveHook):
    """A forward hook."""

    def __call__(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        del module, args
        return self.moved(output)


@dataclass(eq=False)
class Enter:
    """A forward pre-hook on the model: chooses the plan of a call by the shapes of its inputs."""

    route: Route

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        del module
        self.route.active = self.route.plans.get(shapes_of((args, kwargs)), 0)
        self.route.kept.clear()


_HOOKS = (MoveHook, Enter)


def shapes_of(values: Any) -> Shapes:
    """The shapes of all tensors among the arguments of a call, in order."""
    return tuple(tuple(value.shape) for value in tree_leaves(values) if isinstance(value, torch.Tensor))


def hang_moves(model: nn.Module, plans: Sequence[Plan], undo: ExitStack) -> None:
    """Hang the hooks of all plans; ``undo`` takes them off.

    Raises ConversionError where a plan speaks of a module that ``model`` does not have.
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    route = Route({tuple(each.shape for each in plan.inputs): number for number, plan in enumerate(plans)})
    before: dict[str, MoveBefore] = defaultdict(lambda: MoveBefore(route, {}, {}))
    after: dict[str, MoveAfter] = defaultdict(lambda: MoveAfter(route, {}, {}))
    for number, plan in enumerate(plans):
        shared = Counter((move.tensor, move.format) for move in plan.moves if move.where == BEFORE and move.module)
        for move in plan.moves:
            if move.module not in modules:
                raise ConversionError(f"the plan moves a tensor at {move.module!r}, which this model does not have")
            hook = _hook(move, before, after)
            hook.formats[number] = move.format
            hook.readers[number] = max(hook.readers.get(number, 0), shared[move.tensor, move.format] - 1)
    # the innermost first: what comes before the model itself has to run once the plan of the call is chosen
    undo.callback(model.register_forward_pre_hook(Enter(route), with_kwargs=True).remove)
    for path, hook in before.items():
        undo.callback(modules[path].register_forward_pre_hook(hook, with_kwargs=True).remove)
    for path, made in after.items():
        undo.callback(modules[path].register_forward_hook(made).remove)


def has_moves(model: nn.Module) -> bool:
    """Whether the hooks of plans hang on ``model``."""
    return any(isinstance(hook, Enter) for hook in model._forward_pre_hooks.values())


def take_moves_off(model: nn.Module) -> bool:
    """Remove the hooks of plans, from a copied or unpickled model too; whether there were any."""
    found = False
    for module in model.modules():
        for hooks in (module._forward_pre_hooks, module._forward_hooks):
            for key in [key for key, hook in hooks.items() if isinstance(hook, _HOOKS)]:
                del hooks[key]
                module._forward_pre_hooks_with_kwargs.pop(key, None)
                found = True
    return found


def weight_formats(model: nn.Module, plan: Plan) -> dict[str, str]:
    """The weights of modules that the plan runs in channels last, by name."""
    placed = {each.module for each in plan.placements if each.format == CHANNELS_LAST}
    return {
        name: "auto" for name, _ in model.named_parameters(remove_duplicate=False) if name.rpartition(".")[0] in placed
    }


def _hook(move: Move, before: Mapping[str, MoveBefore], after: Mapping[str, MoveAfter]) -> MoveHook:
    return after[move.module] if move.where == AFTER else before[move.module]
