"""Putting a kernel's replacements into torch's dispatcher, and taking them out again.

Private interfaces, read from torch 2.11 to 2.14: the kernels that ``torch.library.get_kernel`` returns and their
``call_boxed``, ``Library._destroy``, and what torch.compile's generated code looks like from the inside (its globals).
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch.library import Library, get_kernel

from nhwc.kernels.registry import Kernel, Replacement

_PLAIN = (torch.Tensor, torch.nn.Parameter)


@dataclass(frozen=True)
class AfterOriginal:
    """What a replacement returns to have the original run and to answer with ``then(result)``."""

    then: Callable[[Any], Any]


class Installation:
    """The replacements of one kernel, as the dispatcher holds them."""

    def __init__(self) -> None:
        self._libraries: dict[str, Library] = {}

    def add(self, each: Replacement) -> None:
        namespace, name = each.operator.split("::")
        if namespace not in self._libraries:
            self._libraries[namespace] = Library(namespace, "IMPL")  # type: ignore[no-untyped-call]
        # a composite is the same on every device: asked for where it runs, since an alias key has no kernel of its own
        original = get_kernel(each.operator, "CPU" if each.key == "CompositeImplicitAutograd" else each.key)
        with warnings.catch_warnings():  # torch warns that an operator has a kernel already: that is the purpose
            warnings.simplefilter("ignore")
            self._libraries[namespace].impl(name, _standing_in(each, original), each.key, with_keyset=True)  # type: ignore[no-untyped-call]

    def remove(self) -> None:
        for library in self._libraries.values():
            library._destroy()  # type: ignore[no-untyped-call]
        self._libraries.clear()


def install(kernel: Kernel) -> Installation:
    """Every replacement of ``kernel`` whose operator this process has; nothing stays behind where one fails."""
    installation = Installation()
    if kernel.needs:
        try:
            importlib.import_module(kernel.needs)
        except ImportError:
            return installation
    try:
        for each in kernel.replacements:
            installation.add(each)
    except BaseException:
        installation.remove()
        raise
    return installation


def _standing_in(each: Replacement, original: Any) -> Any:
    run = each.run
    call_original = original.call_boxed

    def replacement(keyset: Any, *operands: Any, **options: Any) -> Any:
        if not _is_compiled(sys._getframe().f_back):
            result = run(*operands, **options)
            if isinstance(result, AfterOriginal):
                return result.then(call_original(keyset, *operands, **options))
            if result is not NotImplemented:
                return result
        return call_original(keyset, *operands, **options)

    replacement.__name__ = f"nhwc_{run.__name__}"
    return replacement


def _is_compiled(caller: FrameType | None) -> bool:
    """Whether the Python code that calls an operator was generated: it was promised the original's strides.

    inductor's modules hold ``async_compile``; graphs (of aot_eager, of an exported program) are compiled under a name
    of their own; both may call through torch._ops. A thread of C++ has no Python caller.
    """
    if caller is not None and caller.f_globals.get("__name__") == "torch._ops":
        caller = caller.f_back
    if caller is None:
        return False
    return "async_compile" in caller.f_globals or caller.f_code.co_filename.startswith("<eval_with_key>")


def is_plain(tensor: object) -> bool:
    """Whether ``tensor`` holds data of its own: no subclass (fake, functional), and nothing that functorch wraps."""
    return type(tensor) in _PLAIN and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)  # type: ignore[arg-type]


def tracks_forward_gradients() -> bool:
    """Whether a level of forward-mode differentiation is open: our own autograd functions have no formula for it."""
    return torch.autograd.forward_ad._current_level >= 0
