"""Examples of other shapes: those that were given, and the example's at other batch sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from nhwc.errors import ModelError


@dataclass(frozen=True)
class Example:
    """The arguments of one call of a model."""

    inputs: tuple[Any, ...]
    keywords: Mapping[str, Any]

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of its tensors, in order."""
        leaves = tree_leaves((self.inputs, dict(self.keywords)))
        return tuple(tuple(each.shape) for each in leaves if isinstance(each, torch.Tensor))


def other_examples(example: Example, shapes: Sequence[Any], batches: Sequence[Any]) -> tuple[Example, ...]:
    """Examples of the shapes besides ``example``'s, each once.

    shapes: further arguments, a tuple for each; keywords are the example's. batches: sizes of the first dimension of
    all tensors that have the first tensor's, which are cut there, or come round again. Raises ModelError for what is
    no tuple of arguments and no batch size.
    """
    if not isinstance(batches, Sequence):
        raise ModelError(f"batches takes a list of sizes, got {batches!r}: [{batches}]")
    if not isinstance(shapes, Sequence):
        raise ModelError(f"shapes takes a list of tuples of arguments, got a {type(shapes).__name__}: [(x,)]")
    for given in shapes:
        if isinstance(given, torch.Tensor) or not isinstance(given, Sequence):
            raise ModelError(f"shapes takes a tuple of arguments for each shape, got a {type(given).__name__}: (x,)")
        if example.shapes and not Example(tuple(given), {}).shapes:
            raise ModelError(f"shapes takes a tuple of arguments for each shape, got {given!r} without a tensor: (x,)")
    found = [Example(tuple(given), example.keywords) for given in shapes]
    found += [_resized(example, size) for size in batches]
    distinct = {each.shapes: each for each in found}
    return tuple(each for shapes_, each in distinct.items() if shapes_ != example.shapes)


def _resized(example: Example, size: Any) -> Example:
    first = next(iter(example.shapes), ())
    if isinstance(size, bool) or not isinstance(size, int) or size < 1 or not first or not first[0]:
        raise ModelError(f"batches={size!r}: give sizes from 1, for a model that takes batches of tensors")

    def resized(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.dim() or len(value) != first[0]:
            return value
        rows = torch.arange(size, device=value.device) % len(value)
        return value.detach()[rows].requires_grad_(value.requires_grad)

    inputs, keywords = tree_map(resized, (example.inputs, dict(example.keywords)))
    return Example(inputs, keywords)
