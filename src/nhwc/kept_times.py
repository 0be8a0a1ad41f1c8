"""Times that were measured on this machine, kept between processes in one JSON file per machine and library.

The format: {"format": ..., "version": ..., "machine": ..., "times": {what: {label: milliseconds}}}.
Writers take turns by a lock and replace the file whole, after reading what others have added; Ctrl-C waits for that.
A damaged file, or one of another format, is set aside under another name. What goes wrong is told once, in
``messages``; nothing is raised.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nhwc.whole_files import replacing, uninterrupted

Times = dict[str, dict[str, float]]


def folder() -> Path | None:
    """Where measurements are kept: $NHWC_CACHE, else nhwc under the user's cache folder; None with NHWC_CACHE=0."""
    chosen = os.environ.get("NHWC_CACHE", "")
    if chosen == "0":
        return None
    if chosen:
        return Path(chosen)
    with contextlib.suppress(RuntimeError):  # no home
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nhwc"
    return None


class KeptTimes:
    """Times by what was measured and label.

    name: of the file's format ("nhwc engine times"); stem: what the file's name begins with; machine: everything that
    the times depend on and that is not in their keys; where: the folder, None to keep nothing.
    messages: one sentence for each thing that went wrong, none said twice.
    """

    def __init__(self, name: str, version: int, stem: str, machine: str, where: Path | None) -> None:
        self.name, self.version, self.machine = name, version, machine
        digest = hashlib.sha256(machine.encode()).hexdigest()[:16]
        self.path = None if where is None else where / f"{stem}-v{version}-{digest}.json"
        self.messages: list[str] = []
        self._new: Times = {}
        self._times = self._read()

    def get(self, key: str) -> dict[str, float] | None:
        return self._new.get(key) or self._times.get(key)

    def put(self, key: str, times: dict[str, float]) -> None:
        self._new[key] = times

    def save(self) -> None:
        """Add what is new to the file. A folder that cannot be written costs a message and nothing else."""
        if self.path is None or not self._new:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._locked(self.path), uninterrupted():
                merged = {**self._read_or_set_aside(self.path), **self._new}
                for left in self.path.parent.glob(f"{self.path.stem}.*.tmp"):  # by writers that were killed
                    left.unlink(missing_ok=True)
                document = {"format": self.name, "version": self.version, "machine": self.machine, "times": merged}
                with replacing(self.path, self.path.with_suffix(f".{os.getpid()}.tmp")) as file:
                    file.write(json.dumps(document, separators=(",", ":")).encode())
                self._times, self._new = merged, {}
        except OSError as error:
            self._tell(f"measured times cannot be kept in {self.path.parent} ({_reason(error)}); {_REMEDY}")

    def _read(self) -> Times:
        if self.path is None:
            return {}
        try:
            return self._parsed(self.path)
        except OSError as error:
            self._tell(f"measured times cannot be read from {self.path.parent} ({_reason(error)}); {_REMEDY}")
            return {}
        except _DAMAGE:
            try:
                with self._locked(self.path):
                    return self._read_or_set_aside(self.path)
            except OSError as error:
                self._tell(f"the damaged file {self.path} cannot be set aside ({_reason(error)}); remove it")
                return {}

    def _read_or_set_aside(self, path: Path) -> Times:
        """What is in the file; nothing, and a message, where it is not ours. Under the lock."""
        try:
            return self._parsed(path)
        except _DAMAGE:
            aside = path.with_suffix(".damaged")
            path.replace(aside)
            self._tell(f"{path.name} was damaged or not ours and is set aside as {aside}; its times are measured anew")
            return {}

    def _parsed(self, path: Path) -> Times:
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return {}
        return self._times_in(document)

    def _times_in(self, document: Any) -> Times:
        opening = (document["format"], document["version"], document["machine"])
        if opening != (self.name, self.version, self.machine):
            raise ValueError("another format, version or machine")
        return {
            str(key): {str(label): float(taken) for label, taken in times.items()}
            for key, times in document["times"].items()
        }

    @contextlib.contextmanager
    def _locked(self, path: Path) -> Iterator[None]:
        """Alone among the processes that write ``path``; the lock of a process that is killed goes with it."""
        with path.with_suffix(".lock").open("a") as file:
            if sys.platform == "win32":
                yield
                return
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)  # a child that was forked meanwhile has the file open too

    def _tell(self, message: str) -> None:
        if message not in self.messages:
            self.messages.append(message)


_DAMAGE = (ValueError, TypeError, KeyError, AttributeError, RecursionError)
_REMEDY = "set NHWC_CACHE to a folder that can be written, or to 0 to keep none"


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__
