"""A step leaves no trace: random state, training flags, buffers, gradients, and what an optimizer changed.

Private interface, read from torch 2.11 to 2.14: torch._C._autograd._unsafe_set_version_counter(tensors, versions).
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils._python_dispatch import _disable_current_modes

from nhwc.recorder.storage import NO_STORAGE

Undo = Callable[[], object]


class StepGuard:
    """Remembers state before a step touches it and puts it back on leaving, also after an exception.

    Modules: training flags, which parameters and buffers they hold, bytes of buffers, gradients (identity and bytes).
    Optimizers, gradient scalers and schedulers: their attributes, bytes of parameters and of state tensors.
    Random state: torch's on every device, Python's, numpy's, and watched generators'.
    Other Python objects that a step changes (a list of losses, a counter on a module) are not known and stay changed;
    lazy modules that the step initialises stay initialised.
    """

    def __init__(self) -> None:
        self._undo = contextlib.ExitStack()  # goes on to the next when one fails
        self._seen: dict[int, object] = {}

    def __enter__(self) -> StepGuard:
        self._undo.callback(_random_state())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with _disable_current_modes(), torch.no_grad():
            self._undo.close()
        self._seen.clear()

    def _first_time(self, thing: object, identity: int | None = None) -> bool:
        key = id(thing) if identity is None else identity
        if key in self._seen:
            return False
        self._seen[key] = thing  # kept, so that its identity is not given to another
        return True

    def watch_module(self, module: nn.Module) -> None:
        """Remember the buffers, gradients and training flags of ``module`` and everything below it."""
        with _disable_current_modes():
            for child in module.modules():
                if self._first_time(child):
                    self._undo.callback(_module_state(child))
                    for buffer in child.buffers(recurse=False):
                        self.save_memory(buffer)
            for parameter in module.parameters():
                self.watch_gradient(parameter)

    def watch_optimizer(self, optimizer: Optimizer) -> None:
        """Remember the parameter values, gradients and state of ``optimizer``."""
        self.watch_attributes(optimizer)
        with _disable_current_modes():
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    self.watch_gradient(parameter)

    def watch_attributes(self, thing: object) -> None:
        """Remember every attribute of an object, with containers and tensors in them."""
        if self._first_time(thing):
            with _disable_current_modes():
                self._undo.callback(self._remember(vars(thing)))

    def watch_generator(self, generator: torch.Generator) -> None:
        """Remember the state of a random generator."""
        if self._first_time(generator):
            state = generator.get_state()
            self._undo.callback(generator.set_state, state)

    def watch_gradient(self, tensor: torch.Tensor) -> None:
        """Remember the gradient of ``tensor`` and whether it requires one."""
        if not self._first_time(tensor):
            return
        gradient, requires_grad = tensor.grad if tensor.is_leaf else None, tensor.requires_grad
        if gradient is not None:
            self.save_memory(gradient)

        def undo() -> None:
            if tensor.is_leaf:
                tensor.grad = gradient
                if tensor.requires_grad is not requires_grad:
                    tensor.requires_grad_(requires_grad)

        self._undo.callback(undo)

    def save_memory(self, tensor: torch.Tensor) -> None:
        """Remember the bytes of the storage behind ``tensor`` and their version, once for each storage."""
        if tensor.is_meta or nn.parameter.is_lazy(tensor) or isinstance(tensor, torch._subclasses.FakeTensor):
            return
        with _disable_current_modes(), torch.no_grad():
            try:
                storage = tensor.untyped_storage()
                if not self._first_time(storage, storage._cdata):
                    return
                version = None if tensor.is_inference() else tensor._version
                geometry = (tuple(tensor.shape), tensor.stride(), tensor.storage_offset())
                saved = storage.clone()  # type: ignore[no-untyped-call]
            except NO_STORAGE:
                self._save_values(tensor)
                return

        def undo() -> None:
            if storage.nbytes() != saved.nbytes():
                storage.resize_(saved.nbytes())
            storage.copy_(saved)
            if geometry != (tuple(tensor.shape), tensor.stride(), tensor.storage_offset()):
                # a resize_ changed the tensor too: left larger than its memory, its next write would be out of bounds
                with torch.no_grad():
                    tensor.as_strided_(*geometry)
            if version is not None:  # the values are those that graphs from before have saved
                torch._C._autograd._unsafe_set_version_counter((tensor,), (version,))

        self._undo.callback(undo)

    def _save_values(self, tensor: torch.Tensor) -> None:
        """For tensors without a storage of their own: sparse ones, wrappers."""
        if self._first_time(tensor):
            values = tensor.detach().clone()
            self._undo.callback(lambda: tensor.detach().copy_(values))

    def _remember(self, value: Any, known: dict[int, Undo] | None = None) -> Undo:
        """What gives back ``value`` as it is now; dictionaries, lists and tensors get their contents back in place."""
        known = {} if known is None else known
        if id(value) in known:
            return known[id(value)]
        if isinstance(value, torch.Tensor):
            self.save_memory(value)
        elif isinstance(value, dict):
            known[id(value)] = lambda: value
            items = {key: self._remember(item, known) for key, item in value.items()}
            return lambda: _refill(value, {key: item() for key, item in items.items()})
        elif isinstance(value, list | deque):
            known[id(value)] = lambda: value
            members = [self._remember(item, known) for item in value]
            return lambda: _refill(value, [member() for member in members])
        elif isinstance(value, tuple):
            for item in value:
                self._remember(item, known)
        return lambda: value


def _refill(container: Any, contents: Any) -> Any:
    container.clear()
    (container.update if isinstance(container, dict) else container.extend)(contents)
    return container


def _module_state(module: nn.Module) -> Undo:
    training = module.training
    if isinstance(module, torch.jit.ScriptModule):  # its tables are compiled: they cannot be changed from Python

        def flags() -> None:
            module.training = training

        return flags
    tables: list[dict[str, Any]] = [module._parameters, module._buffers]
    held = [(table, dict(table)) for table in tables]
    transient = set(module._non_persistent_buffers_set)

    def undo() -> None:
        module.training = training
        module._non_persistent_buffers_set = transient
        for table, contents in held:
            if list(table) != list(contents) or any(table[name] is not contents[name] for name in contents):
                table.clear()
                table.update(contents)

    return undo


def _random_state() -> Undo:
    python_state = random.getstate()
    cpu_state = torch.get_rng_state()
    numpy_random = getattr(sys.modules.get("numpy"), "random", None)
    numpy_state = numpy_random.get_state() if numpy_random is not None else None
    in_use = torch.cuda.is_available() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    cuda_states = torch.cuda.get_rng_state_all() if in_use else None

    def undo() -> None:
        random.setstate(python_state)
        torch.set_rng_state(cpu_state)
        if numpy_random is not None and numpy_state is not None:
            numpy_random.set_state(numpy_state)
        if cuda_states is not None:
            torch.cuda.set_rng_state_all(cuda_states)

    return undo
