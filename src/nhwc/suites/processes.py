"""Run the jobs of a suite, each in a process of its own, so that what ends one leaves the others alone."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from nhwc.errors import SchemaError, TargetError
from nhwc.schema import load_bench
from nhwc.suites.folder import Folder
from nhwc.suites.selection import Job

#: What measures one job: a command that writes the measurement, as JSON in one line, last to stdout.
Command = Callable[[Job], Sequence[str]]
Tell = Callable[[Job, int, int], None]
_LONGEST = 400
_HINT = "; --debug shows the traceback"  # of the command, which here nobody typed


def run(wanted: Sequence[Job], folder: Folder, command: Command, tell: Tell, done: Callable[[Job], None]) -> None:
    """Measure every job that the folder does not hold yet; a finished one is in the folder before the next begins.

    tell: called with (job, how many are behind it, how many there are) as a job begins. done: called as one ends.
    A job that fails leaves a sentence in the folder, and is tried again by the next run. Raises TargetError where the
    folder cannot be written, or where another run measures into it.
    """
    with _alone(folder.path) as lock:
        for place, job in enumerate(wanted):
            if folder.finished(job):
                continue
            tell(job, place, len(wanted))
            text, failure = _measure(list(command(job)), lock)
            if failure:
                folder.keep_failure(job, failure)
            else:
                folder.keep(job, text)
            done(job)


def _measure(command: list[str], lock: IO[str]) -> tuple[str, str]:
    """The measurement as JSON, and why there is none."""
    # the child holds the lock too: were this process killed, the next run would not measure beside it
    with subprocess.Popen(  # noqa: S603 our own command
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        pass_fds=(lock.fileno(),),
    ) as process:
        try:
            output, said = process.communicate()
        except BaseException:
            process.kill()
            raise
    lines = output.strip().splitlines()
    if process.returncode not in (0, 1) or not lines:
        return "", _sentence(process.returncode, said)
    try:
        load_bench(lines[-1].strip())
    except SchemaError as error:
        return "", f"its answer is no measurement: {error}"
    return lines[-1].strip(), ""


def _sentence(code: int, said: str) -> str:
    """Why a process gave no measurement, from how it ended and the last thing it said."""
    lines = [line.strip() for line in said.strip().splitlines() if line.strip()]
    ours = [line.removeprefix("nhwc: ").removesuffix(_HINT) for line in lines if line.startswith("nhwc: ")]
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        why = ", as the system does where memory runs out" if -code == signal.SIGKILL else ""
        return f"its process was ended by {name}{why}"
    last = (ours or lines or [""])[-1][:_LONGEST]
    return last or f"its process ended with exit code {code} and said nothing"


@contextmanager
def _alone(path: Path) -> Iterator[IO[str]]:
    """Hold the folder's lock, which ends with the last process that holds it, however that ends."""
    import fcntl

    try:
        lock = (path / ".lock").open("w", encoding="utf-8")
    except OSError as error:
        raise TargetError(f"the folder {path} cannot be written: {error.strerror or error}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise TargetError(
                f"another run measures into {path} right now; wait until it ends, or give another folder by --folder"
            ) from error
        except OSError:
            pass  # a file system without locks: two runs at a time are then the user's care
        yield lock
