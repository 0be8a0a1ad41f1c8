"""Small JSON documents by key, a file each, which any process may write, lose or find damaged."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from nhwc.whole_files import replacing


class Documents:
    """Documents of one format in a folder, None for nowhere. most: files; the longest unused go first.

    A folder that cannot be read or written is no error, and a file of another format is none.
    """

    def __init__(self, folder: Path | None, written_as: str, version: int, most: int) -> None:
        self.folder, self.most = folder, most
        self.head = {"format": written_as, "version": version}

    def read(self, key: str) -> dict[str, Any] | None:
        """The document of a key; None where there is none, or none that can be read."""
        if self.folder is None:
            return None
        path = self._path(self.folder, key)
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(document, dict) or any(document.get(name) != held for name, held in self.head.items()):
                return None
        except (OSError, ValueError, RecursionError):
            return None
        with contextlib.suppress(OSError):  # a folder that is only read has no order of use
            os.utime(path)
        return document

    def write(self, key: str, document: dict[str, Any]) -> None:
        """Keep a document. Raises TypeError or ValueError for what is no JSON."""
        if self.folder is None:
            return
        path = self._path(self.folder, key)
        text = json.dumps({**self.head, **document}, separators=(",", ":")).encode()
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            for left in self.folder.glob(f"{path.stem}-*.tmp"):  # by writers that were killed
                left.unlink(missing_ok=True)
            with replacing(path, path.with_name(f"{path.stem}-{os.getpid()}.tmp")) as file:
                file.write(text)
            kept = sorted(self.folder.glob("*.json"), key=lambda each: each.stat().st_mtime)
            for each in kept[: -self.most]:
                each.unlink(missing_ok=True)

    def drop(self, key: str) -> None:
        if self.folder is not None:
            with contextlib.suppress(OSError):
                self._path(self.folder, key).unlink(missing_ok=True)

    @staticmethod
    def _path(folder: Path, key: str) -> Path:
        return folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
