"""The innermost line of the user's code on the Python stack: neither torch's, nor ours, nor the standard library's."""

from __future__ import annotations

import linecache
import sys
import sysconfig
from pathlib import Path
from types import FrameType

import torch

from nhwc.model import Source

_TORCH = str(Path(torch.__file__).parent) + "/"
_OURS = str(Path(__file__).parent.parent) + "/"
_STDLIB = str(Path(sysconfig.get_paths()["stdlib"])) + "/"
_SITE = ("site-packages", "dist-packages")
#: Where the recorder starts the step: what lies further out called the audit, and is no part of the step.
_DOORS = (_OURS + "recorder/run.py", _OURS + "recorder/record.py", _OURS + "verification/run.py")
#: Where Python calls the autograd engine, read from torch 2.11 to 2.14; frames further in run inside the backward pass.
_ENGINE = ("_engine_run_backward", _TORCH + "autograd/graph.py")
_CHECKPOINT = _TORCH + "utils/checkpoint.py"


class SourceLines:
    """Finds user lines; remembers which files are the user's and which lines it has made a Source of."""

    def __init__(self) -> None:
        self._is_user: dict[tuple[str, bool], bool] = {}
        self._sources: dict[tuple[str, int, str], Source] = {}

    def current(self) -> Source | None:
        """The line of the step that led here, None where it holds only torch's and ours."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename in _DOORS:
                return None
            if self._is_users(frame):
                return self._source(frame)
            frame = frame.f_back
        return None

    def inside_backward(self) -> tuple[Source | None, bool]:
        """The user's line that runs inside the backward pass (a backward of their own, a hook, a recomputation), and
        whether activation checkpointing recomputes a forward here."""
        frame: FrameType | None = sys._getframe(1)
        source: Source | None = None
        while frame is not None:
            code = frame.f_code
            if (code.co_name, code.co_filename) == _ENGINE:
                return source, False
            if code.co_filename == _CHECKPOINT:
                return source, True
            if source is None and self._is_users(frame):
                source = self._source(frame)
            frame = frame.f_back
        return None, False  # the engine's own thread, or a backward pass that C++ started

    def _is_users(self, frame: FrameType) -> bool:
        filename = frame.f_code.co_filename
        synthetic = filename.startswith("<")
        # what is typed at a prompt, given to -c or run as a doctest has no file; generated code has neither
        typed = synthetic and frame.f_globals.get("__name__") == "__main__"
        known = self._is_user.get((filename, typed))
        if known is None:
            stdlib = filename.startswith(_STDLIB) and not any(site in filename for site in _SITE)
            named = not synthetic or typed or filename.startswith(("<ipython", "<doctest"))
            known = named and not stdlib and not filename.startswith((_TORCH, _OURS))
            self._is_user[filename, typed] = known
        return known

    def _source(self, frame: FrameType) -> Source:
        code = frame.f_code
        key = (code.co_filename, frame.f_lineno, code.co_qualname)
        source = self._sources.get(key)
        if source is None:
            text = linecache.getline(code.co_filename, frame.f_lineno).strip()
            source = self._sources[key] = Source(code.co_filename, frame.f_lineno, text, code.co_qualname)
        return source
