"""What C libraries print during a recording: caught at the file descriptor, ours taken out, the rest passed on."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator


class Capture:
    """A file descriptor's output, caught into a temporary file. ``position`` is its length in bytes so far."""

    def __init__(self, file_descriptor: int) -> None:
        self._copy: int | None = None
        self._descriptor = file_descriptor

    def position(self) -> int:
        """Bytes caught so far; 0 where the descriptor cannot be caught."""
        return 0 if self._copy is None else os.fstat(self._descriptor).st_size

    def read(self) -> bytes:
        """Everything caught so far."""
        if self._copy is None:
            return b""
        return os.pread(self._descriptor, self.position(), 0)


def _flush(file_descriptor: int) -> None:
    stream = {1: sys.stdout, 2: sys.stderr}.get(file_descriptor)
    with contextlib.suppress(Exception):
        if stream is not None:
            stream.flush()


@contextlib.contextmanager
def captured(file_descriptor: int, is_ours: Callable[[bytes], bool]) -> Iterator[Capture]:
    """Catch a file descriptor. On leaving, lines for which ``is_ours`` is false are written where they belonged."""
    capture = Capture(file_descriptor)
    try:
        original = os.dup(file_descriptor)
    except OSError:  # closed, as under some services: nothing to catch
        yield capture
        return
    with tempfile.TemporaryFile() as caught:
        _flush(file_descriptor)
        os.dup2(caught.fileno(), file_descriptor)
        os.set_inheritable(file_descriptor, True)
        capture._copy = original
        try:
            yield capture
        finally:
            _flush(file_descriptor)
            lines = capture.read().splitlines(keepends=True)
            os.dup2(original, file_descriptor)
            os.close(original)
            capture._copy = None
            for line in lines:
                if not is_ours(line):
                    os.write(file_descriptor, line)
