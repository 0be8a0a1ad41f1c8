"""Module paths: which module of the model is running, through torch's global forward hooks.

Global hooks leave the model's own hooks untouched and see modules that a callable reaches by any road.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack


def unwrap(module: nn.Module) -> nn.Module:
    """The user's model inside DistributedDataParallel, DataParallel or ``torch.compile``'s wrapper."""
    while True:
        if isinstance(module, DistributedDataParallel | DataParallel):
            module = module.module
        elif isinstance(getattr(module, "_orig_mod", None), nn.Module):
            module = module._orig_mod  # type: ignore[assignment]
        else:
            return module


class _Running(NamedTuple):
    path: str
    kind: str
    in_backward: bool
    identity: int


class ModuleStack:
    """Follows the running module. Paths are relative to the first root; a later root gets its class name first.

    confusions: sentences about shared modules, whose path is a guess where the caller does not settle it.
    unseen: sentences about modules that ran in a thread of their own, where no dispatcher mode records.
    """

    def __init__(self, root: nn.Module | None = None, on_root: Callable[[nn.Module], None] | None = None) -> None:
        self._paths: dict[int, list[str]] = {}
        self._keep: list[nn.Module] = []
        self._on_root = on_root
        self._roots = 0
        self._local = threading.local()
        self._thread = threading.get_ident()
        self._handles: list[torch.utils.hooks.RemovableHandle] = []
        self.confusions: list[str] = []
        self.unseen: list[str] = []
        self.layers: dict[str, str] = {}
        if root is not None:
            self.add_root(root)

    def knows(self, module: nn.Module) -> bool:
        """Whether ``module`` is a root or lies below one."""
        return id(module) in self._paths

    def add_root(self, module: nn.Module) -> str:
        """Name every module below ``module``; returns what their paths begin with."""
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
        return prefix

    def __enter__(self) -> ModuleStack:
        self._handles = [
            register_module_forward_pre_hook(self._enter_module),
            register_module_forward_hook(self._leave_module, always_call=True),
        ]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._paths.clear()
        self._keep.clear()
        self._on_root = None  # it leads back here: a cycle would keep the model alive

    def _stack(self) -> list[_Running]:
        stack: list[_Running] | None = getattr(self._local, "stack", None)
        if stack is None:
            stack = self._local.stack = []
        return stack

    def _enter_module(self, module: nn.Module, _inputs: object) -> None:
        if not self.knows(module) and not self._stack():
            if self._on_root is not None:
                self._on_root(module)
            else:
                self.add_root(module)
        path = self._path_of(module)
        kind = type(module).__name__
        if threading.get_ident() != self._thread and not _get_current_dispatch_mode_stack():
            _add(
                self.unseen, f"{kind} {path!r} ran in a thread that the step started: operators there are not recorded"
            )
        in_backward = torch._C._current_autograd_node() is not None
        self._stack().append(_Running(path, kind, in_backward, id(module)))
        if next(module.children(), None) is None:
            self.layers.setdefault(path, kind)

    def _leave_module(self, module: nn.Module, _inputs: object, _output: object) -> None:
        stack = self._stack()
        # an interrupt inside a module skips its hook, so that entries above this module's own may be left over
        if any(running.identity == id(module) for running in stack):
            while stack.pop().identity != id(module):
                pass

    def _path_of(self, module: nn.Module) -> str:
        paths = self._paths.get(id(module))
        stack = self._stack()
        parent = stack[-1].path if stack else ""
        if paths is None:
            return f"{parent}.{type(module).__name__}".lstrip(".")
        if len(paths) == 1:
            return paths[0]
        below = [path for path in paths if path.startswith(parent + ".")] if parent else paths
        direct = [path for path in below if "." not in path.removeprefix(parent).lstrip(".")] if stack else below
        if len(direct) == 1:
            return direct[0]
        if len(below) != 1:
            _add(
                self.confusions,
                f"module {paths[0]!r} is shared by {len(paths)} paths ({', '.join(paths)}); "
                "its calls are listed under one",
            )
        return (below or paths)[0]

    def current(self, in_backward: bool) -> tuple[str, str] | None:
        """(path, type) of the running module; in the backward pass only one that was entered there (recomputation)."""
        stack = self._stack()
        if not stack or (in_backward and not stack[-1].in_backward):
            return None
        return stack[-1].path, stack[-1].kind


def _add(sentences: list[str], sentence: str) -> None:
    if sentence not in sentences:
        sentences.append(sentence)
