"""What a survey has found so far, in a file: a line for each operator and mode, so that it goes on after an end.

Modes are no part of the question that the file belongs to: asked for one more, a survey adds it to what is there.
"""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from nhwc.errors import TargetError
from nhwc.operators import OperatorRow
from nhwc.schema.ops import read_row
from nhwc.schema.typed import plain
from nhwc.timing import Conditions

_FORMAT = "nhwc-ops-part"
Key = tuple[str, str, str]


class Part:
    """Rows by (name, group, mode). path: the file that keeps them, None for none. Use it in a ``with`` block.

    Raises TargetError where the file is none of ours, or belongs to another survey: another question, or another
    machine, torch or number of threads.
    """

    def __init__(self, path: Path | None, question: Mapping[str, Any], conditions: Conditions) -> None:
        self.started = datetime.datetime.now(datetime.UTC).astimezone().isoformat(timespec="seconds")
        self._seconds = 0.0
        self._begun = time.monotonic()
        self._file: TextIO | None = None
        self._found: dict[Key, tuple[OperatorRow, ...]] = {}
        if path is None:
            return
        opening = {"format": _FORMAT, "question": dict(question), "conditions": plain(conditions)}
        known = self._read(path, opening)
        try:
            self._file = path.open("a", encoding="utf-8")
        except OSError as error:
            raise TargetError(f"{path} cannot be written: {error.strerror or error}") from error
        if not known:
            self._write({**opening, "started": self.started})

    def __contains__(self, key: Key) -> bool:
        return key in self._found

    def rows(self, key: Key) -> tuple[OperatorRow, ...]:
        """What was found; none where it was not looked for."""
        return self._found.get(key, ())

    def add(self, key: Key, rows: Sequence[OperatorRow]) -> None:
        """Keep the rows of an operator in a mode."""
        self._found[key] = tuple(rows)
        self._write({"key": key, "rows": [plain(row) for row in rows], "seconds": self.seconds})

    @property
    def seconds(self) -> float:
        """Wall time of all runs of this survey."""
        return self._seconds + time.monotonic() - self._begun

    def _write(self, line: Mapping[str, Any]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()

    def _read(self, path: Path, opening: Mapping[str, Any]) -> bool:
        """Take over what a file holds; whether it holds anything."""
        if not path.exists() or not path.stat().st_size:
            return False
        try:
            text = path.read_text(encoding="utf-8")
            lines = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
        except (OSError, ValueError) as error:
            raise TargetError(f"{path} is no part of a survey ({error}); name another file") from error
        first = lines[0] if lines else {}
        if not isinstance(first, dict) or first.get("format") != _FORMAT:
            raise TargetError(f"{path} is no part of a survey; name another file")
        for key, told in (("question", "question is"), ("conditions", "machine, versions or threads are")):
            if first.get(key) != json.loads(json.dumps(opening[key])):
                raise TargetError(f"{path} is part of another survey: its {told} not this one's; name another file")
        if not text.endswith("\n"):  # it ended in the middle of a line
            path.write_text("".join(line for line in text.splitlines(keepends=True) if line.endswith("\n")))
        self.started = first["started"]
        for line in lines[1:]:
            name, group, mode = line["key"]
            self._found[name, group, mode] = tuple(read_row(row) for row in line["rows"])
            self._seconds = line["seconds"]
        return True

    def __enter__(self) -> Part:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
