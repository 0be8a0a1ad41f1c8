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
def captured(file_descriptor: int, without_ours: Callable[[bytes], bytes]) -> Iterator[Capture]:
    """Catch a file descriptor. On leaving, what ``without_ours`` leaves of the output is written where it belonged."""
    capture = Capture(file_descriptor)
    try:
        original = os.dup(file_descriptor)
    except OSError:  # closed, as under some services: nothing to catch
        yield capture
        return
    try:
        with tempfile.TemporaryFile() as caught:
            _flush(file_descriptor)
            os.dup2(caught.fileno(), file_descriptor)
            capture._copy = original
            try:
                yield capture
            finally:
                _flush(file_descriptor)
                output = capture.read()
                os.dup2(original, file_descriptor)
                capture._copy = None
                _write_all(file_descriptor, without_ours(output))
    finally:
        os.close(original)


def _write_all(file_descriptor: int, output: bytes) -> None:
    rest = memoryview(output)
    while rest:
        rest = rest[os.write(file_descriptor, rest) :]
