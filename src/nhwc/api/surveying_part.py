"""What a survey has found so far, in a file: a line for each operator, so that the same survey goes on after an end."""

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


class Part:
    """Rows by operator. path: the file that keeps them, None for none. Use it in a ``with`` block.

    Raises TargetError where the file is none of ours, or belongs to another survey: another question, or another
    machine, torch or number of threads.
    """

    def __init__(self, path: Path | None, question: Mapping[str, Any], conditions: Conditions) -> None:
        self.started = datetime.datetime.now(datetime.UTC).astimezone().isoformat(timespec="seconds")
        self._seconds = 0.0
        self._begun = time.monotonic()
        self._file: TextIO | None = None
        self._found: dict[tuple[str, str], tuple[OperatorRow, ...]] = {}
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

    def __contains__(self, operator: tuple[str, str]) -> bool:
        return operator in self._found

    def __getitem__(self, operator: tuple[str, str]) -> tuple[OperatorRow, ...]:
        return self._found[operator]

    def add(self, operator: tuple[str, str], rows: Sequence[OperatorRow]) -> None:
        """Keep the rows of an operator, (name, group)."""
        self._found[operator] = tuple(rows)
        self._write({"operator": operator, "rows": [plain(row) for row in rows], "seconds": self.seconds})

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
        differing = [
            key for key in ("question", "conditions") if first.get(key) != json.loads(json.dumps(opening[key]))
        ]
        if differing:
            raise TargetError(f"{path} is part of another survey: its {differing[0]} differ; name another file")
        if not text.endswith("\n"):  # it ended in the middle of a line
            path.write_text("".join(line for line in text.splitlines(keepends=True) if line.endswith("\n")))
        self.started = first["started"]
        for line in lines[1:]:
            name, group = line["operator"]
            self._found[name, group] = tuple(read_row(row) for row in line["rows"])
            self._seconds = line["seconds"]
        return True

    def __enter__(self) -> Part:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
