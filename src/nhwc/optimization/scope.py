"""Kernels for one model only: on while it runs, forward and backward, asleep for everything else.

The model gets a class of its own, below the one it had, whose ``__call__`` switches the kernels: unlike a hook it also
switches them off after a KeyboardInterrupt, and unlike a wrapper on the instance it follows ``copy.deepcopy``, replicas
and pickles. The backward pass runs outside of any call: hooks on the outputs switch the kernels on when it reaches the
model, and they are off once it has ended, or failed: then torch drops what was queued for its end, and the switch.

Private interface, read from torch 2.11 to 2.14: ``torch.autograd.Variable._execution_engine.queue_callback``.
"""

from __future__ import annotations

import copyreg
import functools
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from nhwc.kernels.dispatcher import is_plain
from nhwc.kernels.switch import keep, use

#: Where a module remembers the names of its kernels.
ATTRIBUTE = "_nhwc_kernels"

_kept: weakref.WeakKeyDictionary[nn.Module, weakref.finalize[..., nn.Module]] = weakref.WeakKeyDictionary()
_classes: dict[type[nn.Module], type[nn.Module]] = {}


class Scoped:
    """What the classes of models with kernels have in common."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        names: tuple[str, ...] = vars(self)[ATTRIBUTE]
        call: Callable[..., Any] = super().__call__  # type: ignore[misc]
        if torch.compiler.is_compiling():  # compiled code was promised the originals' strides
            return call(*args, **kwargs)
        _keep(self, names)  # type: ignore[arg-type]
        with use(*names):
            output = call(*args, **kwargs)
        if torch.is_grad_enabled():
            _follow_backward(output, names)
        return output

    def __reduce_ex__(self, protocol: Any) -> Any:
        made = super().__reduce_ex__(protocol)
        if made[0] is not copyreg.__newobj__:  # type: ignore[attr-defined]
            return made
        return (_new, (type(self).__bases__[1], *made[1][1:]), *made[2:])


def scope(model: nn.Module, names: tuple[str, ...], undo: ExitStack) -> None:
    """Have ``names`` (for none: all kernels) on whenever ``model`` runs."""
    before, was = vars(model).get(ATTRIBUTE), type(model)
    undo.callback(_put_back, model, was, before)
    vars(model)[ATTRIBUTE] = names
    if not issubclass(was, Scoped):
        model.__class__ = _scoped(was)


def unscope(model: nn.Module) -> None:
    """Take the kernels off ``model``; nothing where it has none."""
    if isinstance(model, Scoped):
        _put_back(model, type(model).__bases__[1], None)


def kernels_of(model: nn.Module) -> tuple[str, ...] | None:
    """The names that ``model`` was given, none for all; None where it has no kernels."""
    return vars(model).get(ATTRIBUTE) if isinstance(model, Scoped) else None


def _put_back(model: nn.Module, was: type[nn.Module], names: tuple[str, ...] | None) -> None:
    model.__class__ = was
    if names is None:
        vars(model).pop(ATTRIBUTE, None)
    else:
        vars(model)[ATTRIBUTE] = names
    held = _kept.pop(model, None)
    if held is not None:
        held()


def _scoped(base: type[nn.Module]) -> type[nn.Module]:
    """The class below ``base``, under its name: reports and digests of a model read names of classes."""
    if base not in _classes:
        names = {"__module__": base.__module__, "__qualname__": base.__qualname__}
        _classes[base] = type(base.__name__, (Scoped, base), names)
    return _classes[base]


def _new(base: type[nn.Module], *arguments: Any) -> nn.Module:
    """A bare object of the class below ``base``. Pickles name it by this place: it must stay."""
    made = _scoped(base)
    return made.__new__(made, *arguments)


def _keep(model: nn.Module, names: tuple[str, ...]) -> None:
    if model not in _kept:
        held = weakref.finalize(model, keep(*names))
        held.atexit = False
        _kept[model] = held


def _follow_backward(output: Any, names: tuple[str, ...]) -> None:
    hook = functools.partial(_on_until_the_end, names)
    for value in tree_leaves(output):
        if isinstance(value, torch.Tensor) and value.requires_grad and is_plain(value):
            value.register_hook(hook)  # type: ignore[no-untyped-call]


def _on_until_the_end(names: tuple[str, ...], gradient: torch.Tensor) -> None:
    del gradient
    switch = _Switch(names)
    torch.autograd.Variable._execution_engine.queue_callback(switch.off)


class _Switch:
    """Kernels on from now until ``off``, or until nobody holds it any more."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._stack = ExitStack()
        self._stack.enter_context(use(*names))

    def off(self) -> None:
        self._stack.close()

    def __del__(self) -> None:
        self._stack.close()
