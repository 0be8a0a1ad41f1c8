"""Switching kernels on and off: which are wanted, counted, and installed in the dispatcher while anybody wants them.

The dispatcher is one for the process, so a kernel that one thread switches on serves all threads until the last user
leaves; nested and concurrent blocks therefore add up, and none takes away what another still wants.

Installing takes milliseconds, far more than one call of a small model: who switches often keeps kernels installed,
asleep between its blocks.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator

from nhwc.kernels import dispatcher
from nhwc.kernels.registry import Kernel, chosen

_lock = threading.RLock()
_users: Counter[str] = Counter()
_kept: Counter[str] = Counter()
#: What nobody keeps any more: a model may be collected in the middle of a change of the tables here, which a removal
#: then would meet half done.
_let_go: deque[tuple[str, ...]] = deque()
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
            _wake()
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
        _wake()


def keep(*names: str) -> Callable[[], None]:
    """Have kernels installed but asleep, so that blocks of ``use`` cost microseconds; the answer lets go of them.

    What nobody keeps leaves the dispatcher with the next switch. Raises RegistryError for an unknown name.
    """
    kept = tuple(each.name for each in chosen(names))
    with _lock:
        _install(chosen(names))
        _kept.update(kept)
        _wake()
    return lambda: _let_go.append(kept)


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
        return tuple(sorted(name for name, installation in _installed.items() if installation.awake))


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


def _is_wanted(name: str) -> bool:
    return name in _enabled or _users[name] > 0


def _wake() -> None:
    """Let answer what is wanted, and send to sleep what is only kept."""
    for name, installation in _installed.items():
        installation.awake = _is_wanted(name)


def _remove_some() -> None:
    _wake()
    while _let_go:
        _kept.subtract(_let_go.popleft())
    for name in [name for name in _installed if not _is_wanted(name) and _kept[name] <= 0]:
        _installed[name].remove()
        del _installed[name]
