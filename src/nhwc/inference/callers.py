"""Whose code a frame runs: the user's lines, for errors and warnings that are to point at them."""

from __future__ import annotations

import linecache
import sys
import sysconfig
from pathlib import Path
from types import FrameType

import torch

_LIBRARIES = tuple(f"{folder}/" for folder in (Path(torch.__file__).parent, Path(__file__).parents[1]))
_STANDARD = sysconfig.get_path("stdlib") + "/"
_INSTALLED = ("/site-packages/", "/dist-packages/")  # often inside the standard library's folder


def is_users(filename: str) -> bool:
    """Whether a file is neither torch's, nor nhwc's, nor Python's own."""
    standard = filename.startswith(_STANDARD) and not any(part in filename for part in _INSTALLED)
    return not (standard or filename.startswith(("<", *_LIBRARIES)))


def stack_level() -> int:
    """``stacklevel`` for a warning in the function that calls this one, so that it points at the user's line."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and not is_users(frame.f_code.co_filename):
        level, frame = level + 1, frame.f_back
    return level


def users_place(error: BaseException) -> tuple[str, str]:
    """Innermost of the user's lines that an error came through: file, line and function, and the code there.

    Both empty where no line is the user's.
    """
    users: tuple[FrameType, int] | None = None
    trace = error.__traceback__
    while trace is not None:
        if is_users(trace.tb_frame.f_code.co_filename):
            users = trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next
    if users is None:
        return "", ""
    frame, line = users
    filename = frame.f_code.co_filename
    return f"{filename}:{line} in {frame.f_code.co_name}", linecache.getline(filename, line, frame.f_globals).strip()


def first_line(error: BaseException) -> str:
    """The type and the first line of what was raised, without its full stop or colon.

    >>> first_line(ValueError("so it is, but expected one of:\\n * this"))
    'ValueError: so it is, but expected one of'
    """
    said = next((line.strip() for line in str(error).splitlines() if line.strip()), "").rstrip(":.")
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
