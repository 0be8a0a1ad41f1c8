"""Arguments in words: shapes and dtypes of tensors, other values themselves, nested and named as a call has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

_LONGEST = 40


@dataclass(frozen=True)
class _Word:
    text: str


def arguments_text(flat: Sequence[Any], spec: pytree.TreeSpec) -> str:
    """A call's arguments, flattened from (args, kwargs).

    >>> arguments_text(*pytree.tree_flatten(((torch.zeros(1, 3), 2), {"mask": None})))
    '(1, 3) float32, 2, mask=None'
    """
    return _text([_value_text(each) for each in flat], spec)


def signature_text(signature: Sequence[Any], spec: pytree.TreeSpec) -> str:
    """What an engine was built for, from its signature.

    >>> spec = pytree.tree_structure(((0, 0), {}))
    >>> signature_text(((torch.Size([1, 3]), torch.float32), (int, 2)), spec)
    '(1, 3) float32, 2'
    """
    return _text([_entry_text(each) for each in signature], spec)


def dtype_text(dtype: torch.dtype) -> str:
    """The name without the package: "float32"."""
    return str(dtype).removeprefix("torch.")


def is_tensor_entry(entry: Any) -> bool:
    """Whether an entry of a signature stands for a tensor: its shape, its dtype, and where it is no plain memory."""
    return isinstance(entry, tuple) and isinstance(entry[0], torch.Size) and isinstance(entry[1], torch.dtype)


def _entry_text(entry: Any) -> str:
    if is_tensor_entry(entry):
        place = f" on {entry[2]}" if len(entry) > 2 else ""
        return f"{tuple(entry[0])} {dtype_text(entry[1])}{place}"
    return _value_text(entry[1]) if isinstance(entry, tuple) else "an object of the example's"


def _value_text(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        plain = value.device.type == "cpu" and value.layout == torch.strided
        place = "" if plain else f" on {value.device.type}"
        layout = "" if value.layout == torch.strided else f" ({dtype_text(value.layout)})"  # type: ignore[arg-type]
        return f"{tuple(value.shape)} {dtype_text(value.dtype)}{place}{layout}"
    text = repr(value) if isinstance(value, (str, bytes, int, float, complex, type(None))) else ""
    return text if text and len(text) <= _LONGEST else f"a value of type {type(value).__name__}"


def _text(words: Sequence[str], spec: pytree.TreeSpec) -> str:
    args, kwargs = pytree.tree_unflatten([_Word(each) for each in words], spec)
    named = [f"{name}={_nested(value)}" for name, value in kwargs.items()]
    return ", ".join([*map(_nested, args), *named]) or "no arguments"


def _nested(value: Any) -> str:
    if isinstance(value, _Word):
        return value.text
    if type(value) in (list, tuple):
        inner = ", ".join(map(_nested, value))
        return f"[{inner}]" if type(value) is list else f"({inner}{',' * (len(value) == 1)})"
    if type(value) is dict:
        return "{" + ", ".join(f"{name!r}: {_nested(each)}" for name, each in value.items()) + "}"
    return f"{type(value).__name__}({', '.join(_nested(each) for each in pytree.tree_leaves(value))})"
