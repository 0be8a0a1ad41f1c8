"""Which allocator serves this process, and which others are installed."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable
from pathlib import Path

from nhwc.machine.sources import Sources, text_of

#: How the file of an allocator is named, and what it is called; the C libraries come last.
_NAMES = (
    (re.compile(r"libtcmalloc[\w.-]*$"), "tcmalloc"),
    (re.compile(r"libjemalloc[\w.-]*$"), "jemalloc"),
    (re.compile(r"libmimalloc[\w.-]*$"), "mimalloc"),
    (re.compile(r"libtbbmalloc_proxy[\w.-]*$"), "tbbmalloc"),
    (re.compile(r"(ld-)?musl[\w.-]*$"), "musl malloc"),
    (re.compile(r"libc(-[\d.]+)?\.so[\d.]*$"), "glibc malloc"),
)
_PRELOADABLE = ("libtcmalloc*.so*", "libjemalloc*.so*")
GLIBC = "glibc malloc"


def allocator_name(sources: Sources | None = None, address: int | None = None) -> str:
    """The allocator behind ``malloc``: "glibc malloc", "tcmalloc", ...; "unknown" where nothing tells.

    address: of the function ``malloc``, this process's own where None. A library can be mapped without serving anyone,
    so that the mapping that holds the function decides; the names of the mapped files do where none holds it.
    """
    sources = sources or Sources()
    if sources.system == "Darwin":
        return "macOS malloc"
    maps = text_of(sources.proc / "self" / "maps")
    if maps is None:
        return "unknown"
    address = _malloc_address() if address is None else address
    mapped = list(_mapped(maps))
    holding = [path for start, end, path in mapped if address is not None and start <= address < end]
    return _named(holding) or _named(path for _, _, path in mapped) or "unknown"


def preloadable(sources: Sources | None = None) -> tuple[Path, ...]:
    """Shared libraries of faster allocators that are installed, the smallest tcmalloc first."""
    sources = sources or Sources()
    folders = [inner for folder in sources.library_folders for inner in (folder, *_multiarch(folder))]
    found: dict[Path, Path] = {}
    for pattern in _PRELOADABLE:
        for folder in folders:
            for path in sorted(folder.glob(pattern)):
                if path.is_file() and "debug" not in path.name and "profiler" not in path.name:
                    found.setdefault(path.resolve(), path)
    return tuple(sorted(found.values(), key=lambda path: ("tcmalloc" not in path.name, "minimal" not in path.name)))


def _multiarch(folder: Path) -> Iterable[Path]:
    return sorted(folder.glob("*-linux-*"))


def _mapped(maps: str) -> Iterable[tuple[int, int, str]]:
    for line in maps.splitlines():
        fields = line.split(maxsplit=5)
        start, separator, end = fields[0].partition("-") if fields else ("", "", "")
        if separator and len(fields) == 6:
            yield int(start, 16), int(end, 16), fields[5]


def _named(paths: Iterable[str]) -> str:
    files = {Path(path).name for path in paths}
    return next((name for pattern, name in _NAMES if any(pattern.match(file) for file in files)), "")


def _malloc_address() -> int | None:
    try:
        return ctypes.cast(ctypes.CDLL(None).malloc, ctypes.c_void_p).value
    except (OSError, AttributeError, TypeError):  # a system without a dynamic loader that answers
        return None
