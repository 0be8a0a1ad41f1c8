"""What candidates took on this machine, kept between processes in one JSON file per machine and library.

The format: {"format": "nhwc engine times", "version": 1, "machine": ..., "times": {request: {label: milliseconds}}}.
Writers replace the file whole, after reading what others have added; a damaged file is set aside under another name.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from nhwc.kernels.native.library import INTERFACE, status

FORMAT, VERSION = "nhwc engine times", 1


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


class Measurements:
    """Times by request and label. machine: names the processor; threads and sizes are in the requests."""

    def __init__(self, machine: str, where: Path | None) -> None:
        self.machine = f"{machine}, {status().instruction_set}, interface {INTERFACE}"
        name = hashlib.sha256(self.machine.encode()).hexdigest()[:16]
        self.path = None if where is None else where / f"engine-v{VERSION}-{name}.json"
        self._times = self._read()
        self._new: dict[str, dict[str, float]] = {}

    def get(self, key: str) -> dict[str, float] | None:
        return self._new.get(key) or self._times.get(key)

    def put(self, key: str, times: dict[str, float]) -> None:
        self._new[key] = times

    def save(self) -> None:
        """Add what is new to the file. A folder that cannot be written is no error: the engine runs all the same."""
        if self.path is None or not self._new:
            return
        merged = {**self._read(), **self._new}
        document = {"format": FORMAT, "version": VERSION, "machine": self.machine, "times": merged}
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(
                "w", encoding="utf-8", dir=self.path.parent, prefix=self.path.stem, suffix=".tmp", delete=False
            ) as file:
                json.dump(document, file, separators=(",", ":"))
            Path(file.name).replace(self.path)
            self._times, self._new = merged, {}

    def _read(self) -> dict[str, dict[str, float]]:
        if self.path is None:
            return {}
        try:
            if not self.path.exists():
                return {}
            return _times_in(json.loads(self.path.read_text(encoding="utf-8")), self.machine)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            with contextlib.suppress(OSError):
                self.path.replace(self.path.with_suffix(".damaged"))
            return {}


def _times_in(document: Any, machine: str) -> dict[str, dict[str, float]]:
    if document["format"] != FORMAT or document["version"] != VERSION or document["machine"] != machine:
        raise ValueError("another format, version or machine")
    return {
        str(key): {str(label): float(taken) for label, taken in times.items()}
        for key, times in document["times"].items()
    }
