"""Texts of a suite, written whole."""

from __future__ import annotations

from pathlib import Path

from nhwc.errors import TargetError
from nhwc.whole_files import replacing


def write_whole(path: Path, text: str) -> None:
    """Write ``text`` beside ``path``, onto the disk, and then give it its name.

    Raises TargetError, in one sentence, where the disk is full or the folder cannot be written; what was there stays.
    """
    try:
        with replacing(path, path.with_name(f".{path.name}.part")) as file:
            file.write(text.encode("utf-8"))
    except OSError as error:
        raise TargetError(f"{path} cannot be written: {error.strerror or error}") from error
