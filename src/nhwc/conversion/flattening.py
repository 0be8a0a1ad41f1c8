"""Give the Linear layers behind flattened images their columns in the images' own order, and take it back.

What a survey found is tried one by one, and kept only where it is proven.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack
from math import prod
from typing import Any

import torch
from torch import nn

from nhwc.conversion.image_linear import (
    Flow,
    FlowEnds,
    FlowStarts,
    ImageLinear,
    TurnInput,
    TurnOutput,
    change_class,
    flows_of,
    take_off,
)
from nhwc.conversion.moves import Move, apply
from nhwc.conversion.plan import model_tensors, plan_moves
from nhwc.conversion.proof import doubt
from nhwc.conversion.survey import Flattened, Survey
from nhwc.errors import ConversionError
from nhwc.strides import CONTIGUOUS, channels_last_for, strides_for


def fold(model: nn.Module, example: tuple[Any, ...], surveyed: Survey, undo: ExitStack) -> tuple[list[Move], list[str]]:
    """Change every Linear that was found and that proves right: the moves made, and a sentence for each one refused.

    Raises ConversionError where none does, and none was changed by an earlier call.
    """
    moves: list[Move] = []
    refused = list(surveyed.refused)
    for flattened in surveyed.found:
        with ExitStack() as trial:
            made, starts = _change(model, flattened, trial)
            reason = doubt(model, example, flattened, surveyed, training=False)
            if reason is not None:
                refused.append(f"{flattened.site}: {reason}")
                continue
            starts.modes = (False, True)
            reason = doubt(model, example, flattened, surveyed, training=True)
            if reason is not None:
                starts.modes = (False,)
                refused.append(f"{flattened.site}: in training mode it copies as before, since there {reason}")
            moves += made
            undo.push(trial.pop_all())
    if not moves and not any(isinstance(module, ImageLinear) for module in model.modules()):
        why = "; ".join(refused) or (
            "none takes a flattened image that a module hands out; put nn.Flatten where the model flattens"
        )
        raise ConversionError(f"flatten=: no Linear can be changed: {why}")
    return moves, refused


def standing(model: nn.Module) -> list[Move]:
    """For every changed Linear a move to where it is already, which the state of its optimizer has to make."""
    return [Move(name, (weight,), weight.stride(), tuple(weight.shape)) for name, weight in _image_weights(model)]


def plan_unfold(model: nn.Module) -> list[Move]:
    """The moves that give every changed Linear its old shape, unless its images come from outside ``model``."""
    tensors = model_tensors(model)
    shapes = {}
    for name, weight in _image_weights(model, flows_of(model)):
        if name not in tensors:
            raise ConversionError(f"{name}: something computes it (pruning, a parametrization); remove that first")
        shapes[name] = (weight.shape[0], prod(weight.shape[1:]))
    targets = {name: strides_for(shape, CONTIGUOUS) for name, shape in shapes.items()}
    return plan_moves(tensors, targets, shapes)


def unfold(model: nn.Module) -> None:
    """Take off all that ``fold`` hung, once the moves of ``plan_unfold`` are made."""
    flows = flows_of(model)
    for module in model.modules():
        take_off(module, flows)


def _change(model: nn.Module, flattened: Flattened, undo: ExitStack) -> tuple[list[Move], FlowStarts]:
    """Change the Linear layers and hang the hooks; the flow is on in evaluation mode for now."""
    modules = dict(model.named_modules())
    image = flattened.shape[1:]
    linears = {_weight_name(path): modules[path] for path in flattened.linears}
    shapes = {name: (linear.weight.shape[0], *image) for name, linear in linears.items()}
    targets = {name: strides_for(shape, channels_last_for(len(shape))) for name, shape in shapes.items()}
    moves = plan_moves(model_tensors(model), targets, shapes)
    apply(moves, undo)
    flow = Flow(image)
    for linear in linears.values():
        undo.callback(change_class(linear, flow))
    owner, site = modules[flattened.owner], modules[flattened.site]
    below = [path.removeprefix(f"{flattened.owner}.") for path in flattened.linears]
    starts = FlowStarts(flow, below, (False,))
    undo.callback(owner.register_forward_pre_hook(starts).remove)
    undo.callback(owner.register_forward_hook(FlowEnds(flow), always_call=True).remove)
    if isinstance(site, nn.Flatten):
        undo.callback(site.register_forward_pre_hook(TurnInput(flow)).remove)
    else:
        undo.callback(site.register_forward_hook(TurnOutput(flow)).remove)
    return moves, starts


def _weight_name(path: str) -> str:
    return f"{path}.weight" if path else "weight"


def _image_weights(model: nn.Module, flows: Collection[int] | None = None) -> list[tuple[str, torch.Tensor]]:
    linears = [(path, module) for path, module in model.named_modules() if isinstance(module, ImageLinear)]
    return [
        (_weight_name(path), linear.weight)
        for path, linear in linears
        if linear.weight.dim() > 2 and (flows is None or id(linear.flow) in flows)
    ]
