"""Arguments and tensors of an operator call as Python source."""

from __future__ import annotations

import base64
import ctypes
import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch


class NotWritableError(Exception):
    """An argument that has no form in Python source."""


def expression(value: Any, places: Mapping[int, int]) -> str:
    """Python source for an argument; ``places``: id of a tensor → its place in the list ``tensors``.

    >>> expression([1, float("inf"), torch.float32], {})
    "[1, float('inf'), torch.float32]"
    """
    if isinstance(value, torch.Tensor):
        return f"tensors[{places[id(value)]}]"
    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value}')"
    if value is None or type(value) in (bool, int, float, complex, str):
        return repr(value)
    if isinstance(value, list | tuple):
        inside = ", ".join(expression(item, places) for item in value)
        if isinstance(value, list):
            return f"[{inside}]"
        return f"({inside}{',' if len(value) == 1 else ''})"
    if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
        return str(value)
    if isinstance(value, torch.device):
        return f"torch.device({str(value)!r})"
    raise NotWritableError(f"an argument is a {type(value).__name__}, which has no form in Python source")


def call(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], places: Mapping[int, int]) -> str:
    """The call as source: "torch.ops.aten.relu.default(tensors[0])"."""
    namespace, name, overload = str(func).split(".")
    given = [expression(value, places) for value in args]
    given += [f"{key}={expression(value, places)}" for key, value in kwargs.items()]
    return f"torch.ops.{namespace}.{name}.{overload}({', '.join(given)})"


def random_values(value: torch.Tensor, place: int) -> str | None:
    """Source for made-up values in the same range, None for a dtype whose values mean something."""
    if not value.is_floating_point() or value.numel() == 0 or not bool(torch.isfinite(value).all()):
        return None
    low, high = float(value.min()), float(value.max())
    return f"uniform({place}, {tuple(value.shape)}, {low!r}, {high!r})"


def real_values(value: torch.Tensor) -> str:
    """Source for the very values, packed: bytes in contiguous order, compressed, as base64."""
    flat = value.detach().cpu().contiguous()
    raw = ctypes.string_at(flat.data_ptr(), flat.numel() * flat.element_size()) if flat.numel() else b""
    text = base64.b64encode(zlib.compress(raw, 9)).decode("ascii")
    lines = "".join(f"\n        {text[at : at + 100]!r}" for at in range(0, len(text), 100))
    return f"unpack({tuple(value.shape)}, {value.dtype}, ({lines}\n    ))"
