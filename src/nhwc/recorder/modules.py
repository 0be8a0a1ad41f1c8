"""Module paths: which module of the model is running, through torch's global forward hooks.

Global hooks leave the model's own hooks untouched and see modules that a callable reaches by any road.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.nn.parallel import DataParallel, DistributedDataParallel


def unwrap(module: nn.Module) -> nn.Module:
    """The user's model inside DistributedDataParallel, DataParallel or ``torch.compile``'s wrapper."""
    while True:
        if isinstance(module, DistributedDataParallel | DataParallel):
            module = module.module
        elif isinstance(getattr(module, "_orig_mod", None), nn.Module):
            module = module._orig_mod  # type: ignore[assignment]
        else:
            return module


class ModuleStack:
    """Follows the running module. Paths are relative to the first root; a later root gets its class name first.

    confusions: sentences about shared modules, whose path is a guess where the caller does not settle it.
    """

    def __init__(self, root: nn.Module | None = None, on_root: Callable[[nn.Module], None] | None = None) -> None:
        self._paths: dict[int, list[str]] = {}
        self._keep: list[nn.Module] = []
        self._on_root = on_root
        self._roots = 0
        self._local = threading.local()
        self._handles: list[torch.utils.hooks.RemovableHandle] = []
        self.confusions: list[str] = []
        self.layers: dict[str, str] = {}
        if root is not None:
            self.add_root(root)

    def add_root(self, module: nn.Module) -> None:
        """Name every module below ``module``."""
        inner = unwrap(module)
        prefix = "" if self._roots == 0 else type(inner).__name__
        self._roots += 1
        self._keep.append(module)
        for name, child in inner.named_modules(remove_duplicate=False):
            path = ".".join(part for part in (prefix, name) if part)
            self._paths.setdefault(id(child), []).append(path)
        wrapper = module
        while wrapper is not inner:
            self._paths.setdefault(id(wrapper), [prefix])
            wrapper = getattr(wrapper, "_orig_mod", None) or wrapper.module  # type: ignore[assignment]

    def __enter__(self) -> ModuleStack:
        self._handles = [
            register_module_forward_pre_hook(self._enter_module),
            register_module_forward_hook(self._leave_module, always_call=True),
        ]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._paths.clear()
        self._keep.clear()

    def _stack(self) -> list[tuple[str, str, bool]]:
        stack = getattr(self._local, "stack", None)
        if stack is None:
            stack = self._local.stack = []
        return stack

    def _enter_module(self, module: nn.Module, _inputs: object) -> None:
        if id(module) not in self._paths and not self._stack():
            if self._on_root is not None:
                self._on_root(module)
            self.add_root(module)
        path = self._path_of(module)
        kind = type(module).__name__
        in_backward = torch._C._current_autograd_node() is not None
        self._stack().append((path, kind, in_backward))
        if not any(module.children()):
            self.layers.setdefault(path, kind)

    def _leave_module(self, _module: nn.Module, _inputs: object, _output: object) -> None:
        stack = self._stack()
        if stack:
            stack.pop()

    def _path_of(self, module: nn.Module) -> str:
        paths = self._paths.get(id(module))
        stack = self._stack()
        parent = stack[-1][0] if stack else ""
        if paths is None:
            return f"{parent}.{type(module).__name__}".lstrip(".")
        if len(paths) == 1:
            return paths[0]
        below = [path for path in paths if path.startswith(parent + ".")] if parent else paths
        if len(below) != 1:
            sentence = f"module {paths[0]!r} is shared by {len(paths)} paths ({', '.join(paths)}); its calls are listed under one"
            if sentence not in self.confusions:
                self.confusions.append(sentence)
        return (below or paths)[0]

    def current(self, in_backward: bool) -> tuple[str, str] | None:
        """(path, type) of the running module; in the backward pass only one that was entered there (recomputation)."""
        stack = self._stack()
        if not stack or (in_backward and not stack[-1][2]):
            return None
        return stack[-1][0], stack[-1][1]
