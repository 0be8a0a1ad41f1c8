"""The optimizer state of a Linear that was changed to take images: it has the shape of the weight, in the model as
(O, C, H, W), in checkpoints as (O, C * H * W)."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from math import prod
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from nhwc.conversion.image_linear import ImageLinear
from nhwc.conversion.moves import Move, apply
from nhwc.conversion.optimizers import parameters_of
from nhwc.errors import ConversionError

#: They look at rows and columns of a weight of two dimensions.
_OF_MATRICES = frozenset({"Adafactor", "Muon"})


def plan_image_states(optimizer: Optimizer, names: Mapping[int, str], weights: Iterable[Move]) -> list[Move]:
    """Moves that give the state of each weight among ``weights`` the shape and strides that the weight itself gets."""
    moving = {id(tensor): move for move in weights for tensor in move.tensors}
    moves = []
    for parameter in parameters_of(optimizer):
        move = moving.get(id(parameter))
        if move is None:
            continue
        what, kind = names[id(parameter)], type(optimizer).__name__
        if kind in _OF_MATRICES:
            raise ConversionError(f"{what}: {kind} needs a weight of two dimensions; leave out flatten=")
        for key, value in optimizer.state.get(parameter, {}).items():
            if not isinstance(value, torch.Tensor) or value.dim() == 0 or value.shape == move.shape:
                continue
            if value.numel() != parameter.numel() or value.layout is not torch.strided:
                raise ConversionError(f"{what}: {kind} keeps {key} in a shape of its own; leave out flatten=")
            moves.append(Move(f"{what}, {kind} state {key}", (value,), move.strides, move.shape))
    return moves


class ImageStates:
    """Hooks of an optimizer that keep its checkpoints in the usual shape. model: the converted one, held weakly."""

    def __init__(self, model: nn.Module) -> None:
        self._model = weakref.ref(model)

    def hang(self, optimizer: Optimizer) -> list[RemovableHandle]:
        """Hang them; loading has to come before other hooks look at strides."""
        return [
            optimizer.register_load_state_dict_post_hook(self._loaded),
            optimizer.register_state_dict_post_hook(self._saved),
        ]

    def _weights(self) -> dict[int, torch.Tensor]:
        model = self._model()
        found = [] if model is None else [module.weight for module in model.modules() if type(module) is ImageLinear]
        return {id(weight): weight for weight in found if weight.dim() > 2}

    def _loaded(self, optimizer: Optimizer) -> None:
        weights = self._weights()
        moves = [
            Move("state", (value,), weight.stride(), tuple(weight.shape))
            for weight in weights.values()
            for value in optimizer.state.get(weight, {}).values()
            if isinstance(value, torch.Tensor) and tuple(value.shape) == _usual(weight)
        ]
        with ExitStack() as undo:
            apply(moves, undo)
            undo.pop_all()

    def _saved(self, optimizer: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any] | None:
        weights = self._weights()
        state = dict(state_dict["state"])
        for group, packed in zip(optimizer.param_groups, state_dict["param_groups"], strict=True):
            for parameter, index in zip(group["params"], packed["params"], strict=True):
                if id(parameter) in weights and index in state:
                    shape = parameter.shape
                    state[index] = {key: _flat(value, shape) for key, value in state[index].items()}
        return {**state_dict, "state": state} if weights else None


def _usual(weight: torch.Tensor) -> tuple[int, int]:
    return weight.shape[0], prod(weight.shape[1:])


def _flat(value: object, shape: torch.Size) -> object:
    return value.flatten(1) if isinstance(value, torch.Tensor) and value.shape == shape else value
