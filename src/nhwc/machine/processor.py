"""The processor: its name and the instruction sets that it has."""

from __future__ import annotations

import functools
import platform
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")


def processor_name() -> str:
    """The processor's marketing name where the system tells it, else its architecture."""
    return _first("model name") or platform.processor() or platform.machine()


@functools.cache
def instruction_flags() -> frozenset[str]:
    """Instruction sets as Linux names them ("avx2", "avx512_bf16", "amx_tile", "asimd"); empty elsewhere."""
    return frozenset((_first("flags") or _first("Features")).split())


def _first(label: str) -> str:
    if _CPUINFO.exists():
        for line in _CPUINFO.read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == label:
                return value.strip()
    return ""
