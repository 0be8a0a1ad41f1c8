"""Files that are whole or not there: a process that is killed while it writes leaves the file of before, or none."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import IO


@contextlib.contextmanager
def replacing(path: Path, part: Path) -> Iterator[IO[bytes]]:
    """A file ``part``, in the folder of ``path``, that is brought onto the disk and takes its name when the block ends.

    Where the block or the disk fails, ``part`` is gone and what was at ``path`` stays. Raises OSError as it comes.
    """
    try:
        with part.open("wb") as file:
            yield file
            bring_to_disk(file)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Let the block end before Ctrl-C is heard; outside the main thread no KeyboardInterrupt comes anyway."""
    hears = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(hears):
        yield
        return
    heard: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda *given: heard.append(given))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, hears)
        if heard:
            hears(*heard[0])


def bring_to_disk(file: IO[bytes]) -> None:
    """What was written so far, past the caches of this process and of the system."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Bring new names onto the disk; not every file system offers that for folders."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
