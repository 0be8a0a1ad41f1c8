"""The arguments of an operator call: as JSON-able data, and which tensors the call writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

#: Arguments that batch norm kernels write in training although their schemas do not say so.
_RUNNING = ("running_mean", "running_var")


def encode(value: Any, tensors: list[torch.Tensor]) -> object:
    """An argument as JSON-able data; tensors go to ``tensors`` and leave {"tensor": position}.

    >>> found = []
    >>> encode([torch.ones(1), 2, torch.float32], found), len(found)
    ([{'tensor': 0}, 2, {'torch': 'dtype', 'value': 'float32'}], 1)
    """
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return {"tensor": len(tensors) - 1}
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value - value == 0.0 else {"float": str(value)}
    if isinstance(value, list | tuple):
        return [encode(item, tensors) for item in value]
    if isinstance(value, torch.dtype | torch.device | torch.memory_format | torch.layout):
        return {"torch": type(value).__name__, "value": str(value).removeprefix("torch.")}
    return {"object": type(value).__name__}


def mutated(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], inputs: Sequence[torch.Tensor]
) -> tuple[int, ...]:
    """Positions among ``inputs`` of the tensors that the operator's schema says are written."""
    schema = getattr(func, "_schema", None)  # higher-order operators have none
    if schema is None or not schema.is_mutable:
        return ()
    written: set[int] = set()
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            found: list[torch.Tensor] = []
            encode(args[position] if position < len(args) else kwargs.get(argument.name), found)
            written |= {id(tensor) for tensor in found}
    return tuple(position for position, tensor in enumerate(inputs) if id(tensor) in written)


def written_unsaid(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """Running statistics that a batch norm in training writes behind its schema."""
    schema = getattr(func, "_schema", None)
    if schema is None or "batch_norm" not in schema.name:
        return []
    given = {argument.name: args[place] for place, argument in enumerate(schema.arguments) if place < len(args)} | dict(
        kwargs
    )
    if not given.get("training", given.get("train", False)):
        return []
    return [given[name] for name in _RUNNING if isinstance(given.get(name), torch.Tensor)]


def generators(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Generator]:
    """Random generators among the arguments."""
    return [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Generator)]
