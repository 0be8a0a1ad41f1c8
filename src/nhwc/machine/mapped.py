"""What is mapped into this process, and how the kernel hands out its pages."""

from __future__ import annotations

import re
from pathlib import Path

from nhwc.machine.sources import Sources, text_of

_OPENMP = re.compile(r"lib(gomp|iomp5|omp)\b[\w.-]*\.(so|dylib)")


def openmp_runtimes(sources: Sources) -> tuple[str, ...]:
    """File names of the OpenMP runtimes in this process, sorted; more than one means more than one pool of threads."""
    maps = text_of(sources.proc / "self" / "maps") or ""
    files = {Path(fields[5]).name for line in maps.splitlines() if len(fields := line.split(maxsplit=5)) == 6}
    return tuple(sorted(file for file in files if _OPENMP.match(file)))


def huge_pages(sources: Sources) -> str:
    """How transparent huge pages are set: "always", "madvise" or "never"; empty where the system does not tell."""
    text = text_of(sources.sys / "kernel" / "mm" / "transparent_hugepage" / "enabled") or ""
    chosen = re.search(r"\[(\w+)\]", text)
    return chosen[1] if chosen else ""
