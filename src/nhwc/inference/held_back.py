"""What torch.export says on stderr and in its log where it fails: the error says it, in one sentence.

Read from torch 2.14: ``torch/export/_trace.py`` prints the partial graph of a failure, and
``torch.fx.experimental.symbolic_shapes`` warns of symbols without a name.
"""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any, TextIO

from nhwc.inference.turns import TURNS

_LOGGERS = ("torch.fx.experimental.symbolic_shapes", "torch.export", "torch._export", "torch._dynamo")


class _OneThreads:
    """A stream that keeps what one thread writes; the others, such as a progress bar's, go through."""

    def __init__(self, stream: TextIO) -> None:
        self.stream, self.kept, self.owner = stream, io.StringIO(), threading.get_ident()

    def write(self, text: str) -> int:
        return (self.kept if threading.get_ident() == self.owner else self.stream).write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Keep this thread's lines on stderr until the block ends: they follow where it succeeds, and are dropped else.

    Warnings are ignored meanwhile. Streams, loggers and filters are the whole process's: a thread that comes waits.
    """
    with TURNS.alone(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield from _kept_apart()


def _kept_apart() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before, stderr = [each.disabled for each in loggers], sys.stderr
    kept = None if stderr is None else _OneThreads(stderr)
    for each in loggers:
        each.disabled = True
    if kept is not None:
        sys.stderr = kept  # a stream for whoever writes
    try:
        yield
        if kept is not None:
            stderr.write(kept.kept.getvalue())
    finally:
        for each, was in zip(loggers, before, strict=True):
            each.disabled = was
        if sys.stderr is kept:
            sys.stderr = stderr
