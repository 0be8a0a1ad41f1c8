"""What a callable step can reach: the models, optimizers and random generators that it will change."""

from __future__ import annotations

import contextlib
import functools
import types
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

Reached = nn.Module | Optimizer | GradScaler | LRScheduler | torch.Generator | torch.Tensor
_ENDS = (nn.Module, Optimizer, GradScaler, LRScheduler, torch.Generator, torch.Tensor)
_FOREIGN = ("torch", "numpy", "builtins", "collections")
#: Far more than a training step names; a step that holds a data set must not have it walked to the end.
_MOST = 10_000


def reachable(step: Callable[..., object]) -> Iterator[Reached]:
    """Models, optimizers, gradient scalers, schedulers, generators and tensors that ``step`` names.

    Followed: closures, the globals that a function uses, bound objects' attributes, partials, containers, functions.
    """
    pending: deque[object] = deque([step])
    seen: dict[int, object] = {}
    while pending and len(seen) < _MOST:
        value = pending.popleft()
        if id(value) in seen:
            continue
        seen[id(value)] = value
        if isinstance(value, _ENDS):
            yield value
        else:
            pending.extend(_named_by(value))


def _named_by(value: Any) -> list[object]:
    """The values that ``value`` leads to."""
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, types.MethodType):
        return [value.__self__, value.__func__]
    if isinstance(value, types.FunctionType):
        return _named_by_function(value)
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, list | tuple | set | frozenset | deque):
        return list(value)
    if isinstance(value, type | types.ModuleType) or type(value).__module__.partition(".")[0] in _FOREIGN:
        return []
    call = getattr(type(value), "__call__", None)  # noqa: B004 - the method is wanted, not whether it is callable
    return [*getattr(value, "__dict__", {}).values(), *([call] if isinstance(call, types.FunctionType) else [])]


def _named_by_function(function: types.FunctionType) -> list[object]:
    found: list[object] = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # a cell that is not filled yet
            found.append(cell.cell_contents)
    found += [function.__globals__[name] for name in _names(function.__code__) if name in function.__globals__]
    return [*found, getattr(function, "__wrapped__", None)]


def _names(code: types.CodeType) -> Iterator[str]:
    """The global names in a function and in the functions that it defines."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
