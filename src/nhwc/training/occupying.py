"""One run in a folder at a time: a lock that the system lets go of with the process, however that ends."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

from nhwc.distributed import World
from nhwc.errors import CheckpointError
from nhwc.training import ranks
from nhwc.training.finding import restarts
from nhwc.training.settings import TrainSettings

_HELD = (errno.EACCES, errno.EAGAIN)
#: A process that was killed a moment ago is not gone yet; one that torchrun replaces on another machine has 30 seconds.
_PATIENCE_S, _PATIENCE_OF_A_RESTART_S = 0.5, 40.0
_LOOK_EVERY_S = 0.05

#: Locks of this process: the system's keep processes apart, not the threads of one.
_own: set[Path] = set()


@contextlib.contextmanager
def alone(settings: TrainSettings, world: World) -> Iterator[str]:
    """The run's folder is its own inside the block; yields a sentence where that cannot be told. All ranks call it.

    An evaluation alone writes nothing, and may join any run. Raises CheckpointError, on all ranks, as ``occupied``.
    """
    with contextlib.ExitStack() as around:
        problem = said = ""
        if world.first and settings.folder is not None and not settings.evaluate_only:
            try:
                patience_s = _PATIENCE_OF_A_RESTART_S if restarts() else _PATIENCE_S
                said = around.enter_context(occupied(settings.folder, patience_s))
            except CheckpointError as error:
                problem = str(error)
        problem = ranks.firsts(problem)
        if problem:
            raise CheckpointError(problem)
        yield said


@contextlib.contextmanager
def occupied(folder: Path, patience_s: float) -> Iterator[str]:
    """The folder, made where it is not there, is this run's alone inside the block; a sentence where it has no locks.

    patience_s: how long to wait for a run that is about to end. Raises CheckpointError where another run is at it, and
    where nothing can be written.
    """
    path = folder.resolve() / ".lock"
    if path in _own:  # opening and closing it once more would let go of the lock
        raise _refusal(folder, str(os.getpid()))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = path.open("a+b", buffering=0)
    except OSError as error:
        raise CheckpointError(f"{folder} cannot hold checkpoints: {error.strerror or error}") from error
    with file:
        said = _locked(file, folder, patience_s)
        _own.add(path)
        try:
            yield said
        finally:
            _own.discard(path)


def _locked(file: FileIO, folder: Path, patience_s: float) -> str:
    """Lock the file, which says whose it is; a sentence where that cannot be had.

    Of the process, not of the file as flock's: workers that read data inherit that one, and outlive a kill for seconds.
    """
    if sys.platform == "win32":
        return ""
    import fcntl

    until = time.monotonic() + patience_s
    while True:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _HELD:
                return f"{folder} has no locks ({error.strerror}): see to it that no other run writes there"
            if time.monotonic() >= until:
                file.seek(0)
                raise _refusal(folder, file.read(20).decode(errors="replace").strip()) from error
            time.sleep(_LOOK_EVERY_S)
        else:
            with contextlib.suppress(OSError):  # a full disk: the lock holds without the number
                file.truncate(0)
                file.write(f"{os.getpid()}\n".encode())
            return ""


def _refusal(folder: Path, process: str) -> CheckpointError:
    whose = f" (process {process})" if process.isdecimal() else ""
    return CheckpointError(f"a run that still goes on{whose} writes to {folder}; wait for it, or name another folder")
