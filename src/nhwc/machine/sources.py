"""Where facts about a machine are read from; tests put made-up machines in their place."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_LIBRARY_FOLDERS = ("/usr/lib", "/usr/lib64", "/usr/local/lib", "/opt/homebrew/lib", "/opt/conda/lib")


def _affinity() -> frozenset[int] | None:
    """Numbers of the logical processors that this process may run on; None where the system does not tell."""
    asked = getattr(os, "sched_getaffinity", None)  # Linux alone has it
    return frozenset(asked(0)) if asked is not None else None


@dataclass(frozen=True)
class Sources:
    """Folders, environment and system calls that everything here reads from.

    proc, sys: the kernel's two file systems; they may be missing (macOS). environ: environment variables.
    library_folders: where shared libraries are searched for. logical: logical processors of the whole machine.
    """

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    library_folders: tuple[Path, ...] = tuple(map(Path, _LIBRARY_FOLDERS))
    system: str = field(default_factory=platform.system)
    logical: int = field(default_factory=lambda: os.cpu_count() or 1)
    affinity: Callable[[], frozenset[int] | None] = _affinity


def text_of(path: Path) -> str | None:
    """The text of a file, stripped; None where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def numbers_of(path: Path) -> dict[str, int]:
    """A file of lines "name number" as a mapping; empty where it cannot be read."""
    fields = [line.split() for line in (text_of(path) or "").splitlines()]
    return {each[0]: int(each[1]) for each in fields if len(each) == 2 and each[1].isdigit()}
