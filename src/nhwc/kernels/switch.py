"""Switching kernels on and off: which are wanted, counted, and installed in the dispatcher while anybody wants them.

The dispatcher is one for the process, so a kernel that one thread switches on serves all threads until the last user
leaves; nested and concurrent blocks therefore add up, and none takes away what another still wants.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator

from nhwc.kernels import dispatcher
from nhwc.kernels.registry import Kernel, chosen

_lock = threading.RLock()
_users: Counter[str] = Counter()
_enabled: set[str] = set()
_installed: dict[str, dispatcher.Installation] = {}


@contextlib.contextmanager
def use(*names: str) -> Iterator[None]:
    """Channels-last kernels stand in for the operators that lose the format, inside the block; all, or the named ones.

    Only channels-last operands on the CPU take them, and for some on a GPU; any other call runs the original. The
    switch holds for the whole process, backward included, so let a training step end inside the block. Leaving the
    block, also by an exception, puts the dispatcher back, except for kernels that another block or ``enable`` still
    wants.

    A call that another thread makes while the block is entered or left takes the kernel or the original.

    Raises RegistryError for a name that is not registered.

    >>> import torch
    >>> image = torch.randn(2, 6, 8, 8).to(memory_format=torch.channels_last)
    >>> with use("softmax"):
    ...     image.softmax(1).is_contiguous(memory_format=torch.channels_last)
    True
    """
    wanted = chosen(names)
    names = tuple(each.name for each in wanted)
    entered = False
    try:
        with _lock:
            _install(wanted)
            _users.update(names)
            entered = True
        yield
    finally:
        with _lock:
            if entered:
                _users.subtract(names)
            _remove_unwanted()


def enable(*names: str) -> None:
    """Switch kernels on until ``disable``: all, or the named ones. Raises RegistryError for an unknown name."""
    wanted = chosen(names)
    with _lock:
        _install(wanted)
        _enabled.update(each.name for each in wanted)


def disable(*names: str) -> None:
    """Undo ``enable``: for all, or the named ones. Blocks of ``use`` that are open keep theirs.

    Raises RegistryError for an unknown name.
    """
    wanted = chosen(names)
    with _lock:
        _enabled.difference_update(each.name for each in wanted)
        _remove_unwanted()


def active() -> tuple[str, ...]:
    """The kernels that are switched on now, by name."""
    with _lock:
        return tuple(sorted(_installed))


def _install(wanted: tuple[Kernel, ...]) -> None:
    fresh: list[str] = []
    try:
        for each in wanted:
            if each.name not in _installed:
                _installed[each.name] = dispatcher.install(each)
                fresh.append(each.name)
    except BaseException:
        for name in fresh:
            _installed.pop(name).remove()
        raise


def _remove_unwanted() -> None:
    try:
        _remove_some()
    except BaseException:  # a Ctrl-C: what is left goes all the same
        _remove_some()
        raise


def _remove_some() -> None:
    for name in [name for name in _installed if name not in _enabled and _users[name] <= 0]:
        _installed[name].remove()
        del _installed[name]
