"""Putting a kernel's replacements into torch's dispatcher, and taking them out again.

Private interfaces, read from torch 2.11 to 2.14: the kernels that ``torch.library.get_kernel`` returns and their
``call_boxed``, ``Library._destroy``, and what torch.compile's generated code looks like from the inside (its globals).
"""

from __future__ import annotations

import importlib
import sys
import warnings
from typing import Any

import torch
from torch.library import Library, get_kernel

from nhwc.kernels.registry import Kernel, Replacement

_PLAIN = (torch.Tensor, torch.nn.Parameter)


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
        # Compiled code was promised the original's strides when it was generated.
        if sys._getframe(1).f_globals.get("async_compile") is None:
            result = run(*operands, **options)
            if result is not NotImplemented:
                return result
        return call_original(keyset, *operands, **options)

    replacement.__name__ = f"nhwc_{run.__name__}"
    return replacement


def is_plain(tensor: object) -> bool:
    """Whether ``tensor`` holds data of its own: no subclass (fake, functional), and nothing that functorch wraps."""
    return type(tensor) in _PLAIN and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)  # type: ignore[arg-type]


def tracks_forward_gradients() -> bool:
    """Whether a level of forward-mode differentiation is open: our own autograd functions have no formula for it."""
    return torch.autograd.forward_ad._current_level >= 0
