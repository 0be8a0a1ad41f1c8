"""The one change that conversion makes: tensors get other strides, with the same values, and keep their identity."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass

import torch

from nhwc.errors import ConversionError


@dataclass(frozen=True)
class Move:
    """New strides for tensors that are one and the same memory (tied weights); most often a single tensor.

    name: what a user calls it, "features.0.weight".
    """

    name: str
    tensors: tuple[torch.Tensor, ...]
    strides: tuple[int, ...]

    @property
    def copies(self) -> bool:
        """Whether bytes change places; otherwise only strides of dimensions of size 1 change."""
        tensor = self.tensors[0]
        return not same_bytes(tensor.shape, tensor.stride(), self.strides)


def same_bytes(shape: Iterable[int], have: Iterable[int], want: Iterable[int]) -> bool:
    """Whether two strides visit the same elements in the same places.

    >>> same_bytes((8, 1, 3, 3), (9, 9, 3, 1), (9, 1, 3, 1))
    True
    """
    sizes = tuple(shape)
    return 0 in sizes or all(size == 1 or a == b for size, a, b in zip(sizes, have, want, strict=True))


def apply(moves: Iterable[Move], undo: ExitStack) -> None:
    """Make every move; ``undo`` puts the old memory back, so the old and the new exist together until it is dropped."""
    for move in moves:
        try:
            with torch.inference_mode(move.tensors[0].is_inference()):
                moved = with_strides(move.tensors[0], move.strides)
            for tensor in move.tensors:
                undo.callback(_set_data, tensor, tensor.data)
                _set_data(tensor, moved)
        except (RuntimeError, TypeError, NotImplementedError) as error:
            raise ConversionError(
                f"{move.name}: torch refused the new strides ({error}); the model is as before"
            ) from error


def with_strides(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """The values of ``tensor`` under ``strides``: a view where the bytes already lie so, else a copy. No autograd."""
    values = tensor.detach()
    if same_bytes(values.shape, values.stride(), strides):
        return values.as_strided(values.shape, strides)
    pinned = values.device.type == "cpu" and values.is_pinned()
    copy = values.new_empty_strided(values.shape, strides, pin_memory=pinned)
    return copy.copy_(values)


def _set_data(tensor: torch.Tensor, data: torch.Tensor) -> None:
    tensor.data = data
