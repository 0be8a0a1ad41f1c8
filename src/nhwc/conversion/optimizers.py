"""Optimizer state follows its parameter: torch's fused optimizers read parameter, gradient and state as flat memory,
and compute wrong updates, silently on the CPU, where their strides differ."""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack, suppress
from itertools import compress

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import LBFGS, Optimizer

from nhwc.conversion.moves import Move, apply, same_bytes
from nhwc.conversion.plan import is_wrapper
from nhwc.errors import ConversionError
from nhwc.strides import CONTIGUOUS, holds


def plan_states(
    optimizer: Optimizer,
    names: Mapping[int, str],
    targets: Mapping[int, tuple[int, ...]],
    apart: Collection[int] = (),
) -> list[Move]:
    """Moves that give each state tensor of a parameter's shape the strides of its parameter.

    names, targets, apart: by ``id`` of the parameter; one without target keeps its strides, the state of those apart
        is left alone.
    """
    moves = []
    for parameter, state in list(optimizer.state.items()):
        if id(parameter) in apart:
            continue
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
    if own.isdisjoint(id(parameter) for parameter in parameters_of(optimizer)):
        what = type(optimizer).__name__
        raise ConversionError(f"optimizer= is {what} over no parameter of this model; pass the one that trains it")


def optimizers_without_state(
    moves: Iterable[Move], names: Mapping[int, str], passed: Iterable[Optimizer]
) -> list[Optimizer]:
    """The living optimizers over moving parameters that were not passed: they hold no state yet, but may load some.

    Raises where something alive would go wrong, or slow, on the new strides: an optimizer with state that was not
    passed, LBFGS, a DistributedDataParallel that already took the old strides for its buckets.
    """
    moving = {id(tensor): move for move in moves for tensor in move.tensors}
    if not moving:
        return []
    known = {id(optimizer) for optimizer in passed}
    with suppress(ConversionError):
        return _search(moving, names, known)
    # What nobody uses any more, but a reference cycle keeps, must not count.
    gc.collect()
    return _search(moving, names, known)


def holders_of(parameters: Iterable[torch.Tensor]) -> list[Optimizer]:
    """The living optimizers over any of these parameters."""
    wanted = {id(parameter) for parameter in parameters}

    def found() -> list[Optimizer]:
        return [
            one
            for one in _alive(Optimizer)
            if isinstance(one, Optimizer) and not wanted.isdisjoint(id(held) for held in parameters_of(one))
        ]

    if found():
        # What nobody uses any more, but a reference cycle keeps, must not count.
        gc.collect()
    return found()


def _search(moving: Mapping[int, Move], names: Mapping[int, str], known: set[int]) -> list[Optimizer]:
    stateless = []
    for found in _alive(Optimizer, DistributedDataParallel):
        if isinstance(found, DistributedDataParallel):
            # One whose constructor raised may live on in a traceback; it has no reducer, thus no buckets.
            if "reducer" in vars(found):
                _require_unwrapped(found, moving, names)
        elif isinstance(found, Optimizer):
            held = [p for p in parameters_of(found) if id(p) in moving and moving[id(p)].copies]
            if held:
                _require_view_free(found, held[0], moving, names)
                if id(found) not in known:
                    _require_no_state(found, held, moving, names)
                    stateless.append(found)
    return stateless


def _alive(*kinds: type) -> list[object]:
    """Every living instance. Types are compared by ``id``: that is fast, and runs no foreign code."""
    wanted: set[int] = set()
    pending = list(kinds)
    while pending:
        kind = pending.pop()
        wanted.add(id(kind))
        pending.extend(type.__subclasses__(kind))
    objects = gc.get_objects()
    return list(compress(objects, map(wanted.__contains__, map(id, map(type, objects)))))


def _require_view_free(
    optimizer: Optimizer, parameter: torch.Tensor, moving: Mapping[int, Move], names: Mapping[int, str]
) -> None:
    move = moving[id(parameter)]
    if isinstance(optimizer, LBFGS) and not holds(move.shape or parameter.shape, move.strides, CONTIGUOUS):
        raise ConversionError(
            f"{names[id(parameter)]}: LBFGS flattens gradients with view(), which channels last forbids; "
            "use another optimizer"
        )


def _require_no_state(
    optimizer: Optimizer, held: Iterable[torch.Tensor], moving: Mapping[int, Move], names: Mapping[int, str]
) -> None:
    for parameter in held:
        move, state = moving[id(parameter)], optimizer.state.get(parameter, {})
        for key, value in state.items() if move.shape is not None else _state_tensors(parameter, state):
            if not _fits(value, move):
                raise ConversionError(
                    f"{names[id(parameter)]}: a live {type(optimizer).__name__} keeps its {key} in the old strides, on "
                    "which fused updates are wrong; pass it as optimizer="
                )


def _fits(value: object, move: Move) -> bool:
    if not isinstance(value, torch.Tensor) or value.dim() == 0:
        return True
    return move.shape in (None, tuple(value.shape)) and same_bytes(value.shape, value.stride(), move.strides)


def _require_unwrapped(wrapper: DistributedDataParallel, moving: Mapping[int, Move], names: Mapping[int, str]) -> None:
    for parameter in wrapper.parameters():
        if id(parameter) in moving:
            raise ConversionError(
                f"{names[id(parameter)]}: DistributedDataParallel already wraps it and would copy its gradient at "
                "every step; convert the model before wrapping it"
            )


def parameters_of(optimizer: Optimizer) -> list[torch.Tensor]:
    """Every parameter of every group."""
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
