"""Optimizer state follows its parameter: torch's fused optimizers read parameter, gradient and state as flat memory,
and compute wrong updates, silently on the CPU, where their strides differ."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import cast

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import LBFGS, Optimizer

from nhwc.conversion.moves import Move, apply, same_bytes
from nhwc.conversion.plan import is_wrapper
from nhwc.errors import ConversionError
from nhwc.strides import CONTIGUOUS, holds


def plan_states(optimizer: Optimizer, names: Mapping[int, str], targets: Mapping[int, tuple[int, ...]]) -> list[Move]:
    """Moves that give each state tensor of a parameter's shape the strides of its parameter.

    names, targets: by ``id`` of the parameter; a parameter without target keeps its strides.
    """
    moves = []
    for parameter, state in list(optimizer.state.items()):
        for key, value in _state_tensors(parameter, state):
            target = targets.get(id(parameter), parameter.stride())
            if value.stride() != target:
                name = f"{names.get(id(parameter), 'parameter')}, {type(optimizer).__name__} state {key}"
                if is_wrapper(value):
                    raise ConversionError(f"{name}: a {type(value).__name__} cannot follow; convert before training")
                moves.append(Move(name, (value,), target))
    return moves


def follow_parameters(optimizer: Optimizer) -> None:
    """A ``load_state_dict`` post hook: state from a checkpoint takes the strides of its parameter."""
    with ExitStack() as undo:
        apply(plan_states(optimizer, {}, {}), undo)
        undo.pop_all()


def require_own(optimizer: Optimizer, model: nn.Module) -> None:
    """Raise where ``optimizer`` has nothing to do with ``model``."""
    own = {id(parameter) for parameter in model.parameters()}
    if own.isdisjoint(id(parameter) for parameter in _parameters(optimizer)):
        what = type(optimizer).__name__
        raise ConversionError(f"optimizer= is {what} over no parameter of this model; pass the one that trains it")


def require_no_trap(moves: Iterable[Move], names: Mapping[int, str], passed: Iterable[Optimizer]) -> None:
    """Raise where something alive would go wrong, or slow, on the new strides: an optimizer with state that was not
    passed, LBFGS, a DistributedDataParallel that already took the old strides for its buckets."""
    moving = {id(tensor): move for move in moves for tensor in move.tensors}
    if not moving:
        return
    known = {id(optimizer) for optimizer in passed}
    if _first_complaint(moving, names, known) is not None:
        # What nobody uses any more, but a reference cycle keeps, must not count.
        gc.collect()
        complaint = _first_complaint(moving, names, known)
        if complaint is not None:
            raise ConversionError(complaint)


def _first_complaint(moving: Mapping[int, Move], names: Mapping[int, str], known: set[int]) -> str | None:
    for found in gc.get_objects():
        # The type first: asking isinstance of any object at all would run foreign __class__ properties.
        if issubclass(type(found), Optimizer):
            complaint = _optimizer_complaint(cast(Optimizer, found), moving, names, id(found) in known)
        elif issubclass(type(found), DistributedDataParallel):
            complaint = _wrapper_complaint(cast(DistributedDataParallel, found), moving, names)
        else:
            continue
        if complaint is not None:
            return complaint
    return None


def _optimizer_complaint(
    optimizer: Optimizer, moving: Mapping[int, Move], names: Mapping[int, str], passed: bool
) -> str | None:
    what = type(optimizer).__name__
    for parameter in _parameters(optimizer):
        move = moving.get(id(parameter))
        if move is None or not move.copies:
            continue
        name = names.get(id(parameter), move.name)
        if isinstance(optimizer, LBFGS) and not holds(parameter.shape, move.strides, CONTIGUOUS):
            return f"{name}: LBFGS flattens gradients with view(), which channels last forbids; use another optimizer"
        for key, value in () if passed else _state_tensors(parameter, optimizer.state.get(parameter, {})):
            if not same_bytes(value.shape, value.stride(), move.strides):
                return (
                    f"{name}: a live {what} keeps its {key} in the old strides, on which fused updates are wrong; "
                    "pass it as optimizer="
                )
    return None


def _wrapper_complaint(
    wrapper: DistributedDataParallel, moving: Mapping[int, Move], names: Mapping[int, str]
) -> str | None:
    for parameter in wrapper.parameters():
        if id(parameter) in moving:
            name = names.get(id(parameter), moving[id(parameter)].name)
            return (
                f"{name}: DistributedDataParallel already wraps it and would copy its gradient at every step; "
                "convert the model before wrapping it"
            )
    return None


def _parameters(optimizer: Optimizer) -> list[torch.Tensor]:
    return [parameter for group in vars(optimizer).get("param_groups", ()) for parameter in group["params"]]


def _state_tensors(parameter: torch.Tensor, state: Mapping[str, object]) -> list[tuple[str, torch.Tensor]]:
    return [
        (key, value)
        for key, value in state.items()
        if isinstance(value, torch.Tensor)
        and value.dim() > 0
        and value.shape == parameter.shape
        and value.layout is torch.strided
    ]
