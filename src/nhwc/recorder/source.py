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


class SourceLines:
    """Finds user lines; remembers which files are the user's and which lines it has made a Source of."""

    def __init__(self) -> None:
        self._is_user: dict[str, bool] = {}
        self._sources: dict[tuple[str, int, str], Source] = {}

    def current(self) -> Source | None:
        """The line that led here, None where only torch and we are on the stack."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            code = frame.f_code
            if self._user_file(code.co_filename):
                return self._source(code.co_filename, frame.f_lineno, code.co_qualname)
            frame = frame.f_back
        return None

    def _user_file(self, filename: str) -> bool:
        known = self._is_user.get(filename)
        if known is None:
            # notebooks cells live in files named "<ipython-input-...>" or in a temporary directory
            synthetic = filename.startswith("<") and not filename.startswith("<ipython")
            stdlib = filename.startswith(_STDLIB) and not any(site in filename for site in _SITE)
            known = not (synthetic or stdlib or filename.startswith((_TORCH, _OURS)))
            self._is_user[filename] = known
        return known

    def _source(self, filename: str, line: int, function: str) -> Source:
        key = (filename, line, function)
        source = self._sources.get(key)
        if source is None:
            text = linecache.getline(filename, line).strip()
            source = self._sources[key] = Source(filename, line, text, function)
        return source
