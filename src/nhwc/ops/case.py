"""One call of an operator with its arguments, which can be brought to a format, a dtype or another shape."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from nhwc.strides import channels_last_for, strides_for

Change = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Case:
    """``run(*arguments, **keywords)``; its tensors are contiguous, and those to differentiate require gradients.

    plain: places among ``tensors`` of those that are no pictures whatever their rank, such as a sampling grid.
    """

    run: Callable[..., Any]
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any] = field(default_factory=dict)
    plain: frozenset[int] = frozenset()

    def __call__(self) -> Any:
        return self.run(*self.arguments, **self.keywords)

    @property
    def tensors(self) -> list[torch.Tensor]:
        """Every tensor among the arguments, in order."""
        return list(tensors_of((self.arguments, self.keywords)))

    @property
    def dims(self) -> int:
        """2 for pictures, 3 for volumes: by the first float tensor whose format can be told; 0 where there is none."""
        for tensor in self.tensors:
            if tensor.is_floating_point() and has_format(tensor.shape):
                return tensor.dim() - 2
        return 0

    def changed(self, change: Change) -> Case:
        """The same call with every tensor changed."""
        arguments, keywords = mapped((self.arguments, dict(self.keywords)), change)
        return replace(self, arguments=arguments, keywords=keywords)

    def formatted(self, *, channels_last: bool) -> Case:
        """The same call on fresh tensors in a format, in gradients too; plain ones are contiguous in either."""
        places = itertools.count()
        return self.changed(
            lambda tensor: in_format(tensor, channels_last=channels_last and next(places) not in self.plain)
        )

    @property
    def pictures(self) -> list[torch.Tensor]:
        """The tensors whose format can be told, plain ones left out."""
        return [
            tensor for place, tensor in enumerate(self.tensors) if place not in self.plain and has_format(tensor.shape)
        ]


def tensors_of(tree: Any) -> Iterator[torch.Tensor]:
    """Tensors in nested lists, tuples and dictionaries, in order."""
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, Mapping):
        for value in tree.values():
            yield from tensors_of(value)
    elif isinstance(tree, list | tuple):
        for value in tree:
            yield from tensors_of(value)


def mapped(tree: Any, change: Change) -> Any:
    """Nested lists, tuples and dictionaries with every tensor changed."""
    if isinstance(tree, torch.Tensor):
        return change(tree)
    if isinstance(tree, dict):
        return {key: mapped(value, change) for key, value in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(mapped(value, change) for value in tree))
    if isinstance(tree, list | tuple):
        return type(tree)(mapped(value, change) for value in tree)
    return tree


def has_format(shape: Sequence[int]) -> bool:
    """Whether contiguous and channels last differ for a shape: rank 4 or 5, several channels, several pixels."""
    return len(shape) in (4, 5) and 0 not in shape and shape[1] > 1 and math.prod(shape[2:]) > 1


def in_format(tensor: torch.Tensor, *, channels_last: bool) -> torch.Tensor:
    """A fresh leaf with the values of ``tensor`` and canonical strides; channels last for ranks 4 and 5 only."""
    wanted = channels_last_for(tensor.dim()) if channels_last else None
    strides = strides_for(tensor.shape, wanted or "contiguous")
    fresh = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device)
    return fresh.copy_(tensor.detach()).requires_grad_(tensor.requires_grad)


def in_dtype(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A fresh leaf in ``dtype`` where the tensor holds real floating point numbers, else a copy."""
    fresh = tensor.detach().to(dtype, copy=True) if tensor.is_floating_point() else tensor.detach().clone()
    return fresh.requires_grad_(tensor.requires_grad)


def tiled(tensor: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """A tensor of ``shape`` that repeats the values of another, so that they stay within an operator's domain."""
    values = tensor.detach().reshape(-1)
    count = math.prod(shape)
    places = torch.arange(count, device=tensor.device) * 7 % max(values.numel(), 1)
    return values[places].reshape(tuple(shape)).clone().requires_grad_(tensor.requires_grad)
