"""A step leaves no trace: random state, training flags, buffers, gradients, and what an optimizer changed."""

from __future__ import annotations

import contextlib
import inspect
import random
import sys
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer


class StepGuard:
    """Remembers state before a step touches it and puts it back on leaving, also after an exception.

    Modules: training flags, buffers (identity and values), gradients (identity and values).
    Optimizers: parameter values and optimizer state. Random state: torch's on every device, Python's, numpy's.
    Python objects that a user's callable changes itself (a list of losses, a scheduler) are not known and stay.
    """

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []
        self._seen: set[int] = set()

    def __enter__(self) -> StepGuard:
        self._undo.append(_random_state())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with torch.no_grad():
            while self._undo:
                self._undo.pop()()
        self._seen.clear()

    def _first_time(self, thing: object) -> bool:
        if id(thing) in self._seen:
            return False
        self._seen.add(id(thing))
        return True

    def watch_module(self, module: nn.Module) -> None:
        """Remember the buffers, gradients and training flags of ``module`` and everything below it."""
        for child in module.modules():
            if not self._first_time(child):
                continue
            self._undo.append(_module_state(child))
        for parameter in module.parameters():
            if self._first_time(parameter):
                self._undo.append(_gradient_state(parameter))

    def watch_optimizer(self, optimizer: Optimizer) -> None:
        """Remember the parameter values, gradients and state of ``optimizer``."""
        if not self._first_time(optimizer):
            return
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if self._first_time(parameter):
                    self._undo.append(_gradient_state(parameter))
                self._undo.append(_value_state(parameter))
        self._undo.append(_optimizer_state(optimizer))


def _value_state(tensor: torch.Tensor) -> Callable[[], None]:
    value = tensor.detach().clone()

    def undo() -> None:
        tensor.data.copy_(value)

    return undo


def _gradient_state(parameter: torch.Tensor) -> Callable[[], None]:
    gradient = parameter.grad
    value = None if gradient is None else gradient.detach().clone()

    def undo() -> None:
        if gradient is not None and value is not None:
            gradient.detach().copy_(value)
        parameter.grad = gradient

    return undo


def _module_state(module: nn.Module) -> Callable[[], None]:
    training = module.training
    # a module that writes plain tensor attributes keeps them: only registered state is known
    buffers = {name: (buffer, _clone(buffer)) for name, buffer in module._buffers.items()}

    def undo() -> None:
        module.training = training
        for name, (buffer, value) in buffers.items():
            if buffer is not None and value is not None:
                with contextlib.suppress(RuntimeError):
                    buffer.copy_(value)
            module._buffers[name] = buffer

    return undo


def _clone(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None or tensor.is_meta else tensor.detach().clone()


def _optimizer_state(optimizer: Optimizer) -> Callable[[], None]:
    saved: dict[Any, dict[str, tuple[Any, Any]]] = {}
    for parameter, state in optimizer.state.items():
        saved[parameter] = {
            key: (value, value.detach().clone() if isinstance(value, torch.Tensor) else value) for key, value in state.items()
        }
    options = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]

    def undo() -> None:
        for parameter in list(optimizer.state):
            if parameter not in saved:
                del optimizer.state[parameter]
        for parameter, entries in saved.items():
            state = optimizer.state[parameter]
            for key in [key for key in state if key not in entries]:
                del state[key]
            for key, (value, copy) in entries.items():
                if isinstance(value, torch.Tensor):
                    value.detach().copy_(copy)
                state[key] = value
        for group, kept in zip(optimizer.param_groups, options, strict=True):
            group.update(kept)

    return undo


def _random_state() -> Callable[[], None]:
    python_state = random.getstate()
    cpu_state = torch.get_rng_state()
    numpy_random = getattr(sys.modules.get("numpy"), "random", None)
    numpy_state = numpy_random.get_state() if numpy_random is not None else None
    cuda_states = torch.cuda.get_rng_state_all() if torch.cuda.is_available() and torch.cuda.is_initialized() else None

    def undo() -> None:
        random.setstate(python_state)
        torch.set_rng_state(cpu_state)
        if numpy_random is not None and numpy_state is not None:
            numpy_random.set_state(numpy_state)
        if cuda_states is not None:
            torch.cuda.set_rng_state_all(cuda_states)

    return undo


def reachable(step: Callable[..., object]) -> Iterator[nn.Module | Optimizer]:
    """Modules and optimizers that a callable names: its closure, the globals it uses, its bound object's attributes."""
    names: list[object] = []
    owner = getattr(step, "__self__", None)
    if owner is not None:
        names += [owner, *vars(owner).values()] if hasattr(owner, "__dict__") else [owner]
    function = inspect.unwrap(getattr(step, "__func__", step))
    if inspect.isfunction(function):
        with contextlib.suppress(ValueError, TypeError):
            variables = inspect.getclosurevars(function)
            names += [*variables.nonlocals.values(), *variables.globals.values()]
    for value in names:
        if isinstance(value, nn.Module | Optimizer):
            yield value
