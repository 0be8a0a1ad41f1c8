"""Who captures a model has it alone: torch.export gives it fake parameters meanwhile. Who calls it shares it."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections import Counter
from collections.abc import Iterator
from types import TracebackType


class Turns:
    """One thread alone, or any number together; a thread that is alone, or shares, may do either again.

    Threads that come while one waits to be alone let it go first, or it might wait for ever. A fork waits until no
    thread is alone, so that a child finds streams, filters and models as they are.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._owner, self._depth, self._waiting = 0, 0, 0
        self._sharing: Counter[int] = Counter()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Until the block ends no other thread is in one of either kind."""
        me = threading.get_ident()
        with self._changed:
            own = self._sharing.pop(me, 0)  # two that share and want to be alone would wait for each other
            self._changed.notify_all()
            self._waiting += 1
            try:
                self._changed.wait_for(lambda: self._is_free(me) and not self._sharing)
                self._owner, self._depth = me, self._depth + 1
            finally:
                self._waiting -= 1
                self._sharing += Counter({me: own})
        try:
            yield
        finally:
            with self._changed:
                self._depth -= 1
                self._owner = me if self._depth else 0
                self._changed.notify_all()

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """Until the block ends no other thread is alone."""
        me = threading.get_ident()
        with self._changed:
            inside = me == self._owner or me in self._sharing
            self._changed.wait_for(lambda: inside or (self._is_free(me) and not self._waiting))
            self._sharing[me] += 1
        try:
            yield
        finally:
            with self._changed:
                self._sharing -= Counter({me: 1})
                self._changed.notify_all()

    def _is_free(self, me: int) -> bool:
        return self._owner in {0, me}

    def before_fork(self) -> None:
        self._changed.acquire()
        self._changed.wait_for(lambda: self._is_free(threading.get_ident()))

    def after_fork(self) -> None:
        self._changed.release()

    def after_fork_in_child(self) -> None:
        me = threading.get_ident()
        self._sharing = Counter({me: self._sharing[me]} if me in self._sharing else {})
        self._changed, self._waiting = threading.Condition(), 0


class Lock:
    """A lock that a forked child finds open: the thread that held it is not there."""

    def __init__(self) -> None:
        self.open()
        _LOCKS.add(self)

    def open(self) -> None:
        self._held = threading.Lock()

    def __enter__(self) -> None:
        self._held.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.release()


_LOCKS: weakref.WeakSet[Lock] = weakref.WeakSet()
#: Of the whole process, since streams, loggers and filters of warnings are.
TURNS = Turns()


def _open_all() -> None:
    for each in list(_LOCKS):
        each.open()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=TURNS.before_fork, after_in_parent=TURNS.after_fork, after_in_child=TURNS.after_fork_in_child
    )
    os.register_at_fork(after_in_child=_open_all)
