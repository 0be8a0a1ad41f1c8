"""Files that are whole or not there: a run that is killed while it writes leaves the file of before, or none."""

from __future__ import annotations

import os
from pathlib import Path

from nhwc.errors import TargetError


def write_whole(path: Path, text: str) -> None:
    """Write ``text`` beside ``path``, onto the disk, and then give it its name.

    Raises TargetError, in one sentence, where the disk is full or the folder cannot be written; what was there stays.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        try:
            with part.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)
    except OSError as error:
        raise TargetError(f"{path} cannot be written: {error.strerror or error}") from error


def _sync_folder(folder: Path) -> None:
    """Bring the new name onto the disk; not every file system offers that for folders."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
