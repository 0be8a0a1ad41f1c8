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
    shape: another shape for the same values in the same logical order, (O, C * H * W) as (O, C, H, W) or back.
    """

    name: str
    tensors: tuple[torch.Tensor, ...]
    strides: tuple[int, ...]
    shape: tuple[int, ...] | None = None

    @property
    def copies(self) -> bool:
        """Whether bytes change places; otherwise only strides of dimensions of size 1 change."""
        tensor = self.tensors[0]
        return self.shape is not None or not same_bytes(tensor.shape, tensor.stride(), self.strides)


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
                moved = with_strides(move.tensors[0], move.strides, move.shape)
            for tensor in move.tensors:
                undo.callback(_set_data, tensor, tensor.data)
                _set_data(tensor, moved)
        except (RuntimeError, TypeError, NotImplementedError) as error:
            raise ConversionError(
                f"{move.name}: torch refused the new strides ({error}); the model is as before"
            ) from error


def with_strides(tensor: torch.Tensor, strides: tuple[int, ...], shape: tuple[int, ...] | None = None) -> torch.Tensor:
    """The values of ``tensor`` under ``strides``: a view where the bytes already lie so, else a copy. No autograd.

    shape: the same values in the same logical order under another shape.
    """
    values = tensor.detach()
    if shape is None or tuple(values.shape) == shape:
        if same_bytes(values.shape, values.stride(), strides):
            return values.as_strided(values.shape, strides)
        return _empty(values, values.shape, strides).copy_(values)
    copy = _empty(values, shape, strides)
    if (
        copy.is_contiguous()
    ):  # the fresh tensor takes the old shape, where `values` might need a copy to take the new one
        copy.view(values.shape).copy_(values)
    else:
        copy.copy_(values.reshape(shape))
    return copy


def _empty(like: torch.Tensor, shape: tuple[int, ...], strides: tuple[int, ...]) -> torch.Tensor:
    return like.new_empty_strided(shape, strides, pin_memory=like.device.type == "cpu" and like.is_pinned())


def _set_data(tensor: torch.Tensor, data: torch.Tensor) -> None:
    if tensor.shape != data.shape:
        # A living graph holds what accumulates the gradient, in the old shape: another dtype makes torch let go of it.
        other = torch.float32 if tensor.dtype is torch.float64 else torch.float64
        tensor.data = torch.empty(0, dtype=other, device=tensor.device)
    tensor.data = data
