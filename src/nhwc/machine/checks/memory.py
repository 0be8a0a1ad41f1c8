"""Checks of memory, the allocator above all: fresh pages for every large output cost as much as the arithmetic."""

from __future__ import annotations

import statistics

from nhwc.health import State
from nhwc.machine.allocation import tuned
from nhwc.machine.allocators import GLIBC
from nhwc.machine.checks.registry import Answer, check
from nhwc.machine.snapshot import Snapshot

_SUBJECT = "memory"
_FAST = ("tcmalloc", "jemalloc", "mimalloc", "tbbmalloc")
_INSTALL = "install tcmalloc (apt install libtcmalloc-minimal4, dnf install gperftools-libs) and preload it"
_TUNABLES = ("MALLOC_", "GLIBC_TUNABLES", "TCMALLOC_", "MIMALLOC_")


@check(_SUBJECT, "limit")
def limit(machine: Snapshot) -> Answer:
    """The most that the control group lets this process hold."""
    size = machine.limits.memory_bytes
    return Answer(
        "none" if size is None else f"{size / 2**30:.1f} GiB (control group version {machine.limits.version})"
    )


@check(_SUBJECT, "allocator")
def allocator(machine: Snapshot) -> Answer:
    """Who serves the memory of tensors on the CPU."""
    name = machine.allocator
    if name in _FAST or name == "macOS malloc":
        return Answer(name)
    if name == GLIBC and tuned(machine.environ):
        return Answer(f"{name}, set to keep freed memory")
    if name == GLIBC:
        return Answer(name, State.BETTER, _what_to_preload(machine))
    if name == "musl malloc":
        return Answer(name, State.BETTER, "preload mimalloc or jemalloc: musl's allocator has one lock for all threads")
    return Answer(name, State.UNKNOWN, "this system does not tell; see whether a preloaded allocator changes the times")


def _what_to_preload(machine: Snapshot) -> str:
    if machine.preloadable:
        return f"run python with LD_PRELOAD={machine.preloadable[0]}"
    return _INSTALL


@check(_SUBJECT, "another allocator gains")
def gain(machine: Snapshot) -> Answer | None:
    """What the measurement said: a step with large outputs with one allocator and with the other."""
    found = machine.gain
    if found.ratio is None:
        if machine.system != "Linux" or not found.failure:
            return None
        return Answer("not measured", State.UNKNOWN, found.failure)
    ratio = found.ratio
    times = f"{statistics.median(found.plain_ms):.1f} to {statistics.median(found.other_ms):.1f} ms"
    value = (
        f"{ratio.estimate:.2f} times as fast ({ratio.low:.2f} to {ratio.high:.2f}, 95 %) with {found.other} as with "
        f"{found.plain}: {times} a step, {found.plain_faults:,.0f} to {found.other_faults:,.0f} page faults"
    )
    if found.setting and ratio.low > 1.0:
        until = "" if found.setting.startswith("LD_PRELOAD") else f"{_INSTALL}; until then "
        return Answer(value, State.BETTER, f"{until}run python with {found.setting}")
    if not found.setting and ratio.high < 1.0:
        return Answer(value, State.BETTER, f"run without {found.other}: it is slower here")
    return Answer(value)


@check(_SUBJECT, "allocator settings")
def tunables(machine: Snapshot) -> Answer:
    """Environment variables that allocators read."""
    given = [f"{name}={value}" for name, value in sorted(machine.environ.items()) if name.startswith(_TUNABLES)]
    return Answer(" ".join(given) or "none")


@check(_SUBJECT, "huge pages")
def huge_pages(machine: Snapshot) -> Answer | None:
    """Whether large blocks get pages of 2 MiB, which make fewer faults."""
    if machine.system != "Linux":
        return None
    asked = machine.environ.get("THP_MEM_ALLOC_ENABLE") == "1"
    value = machine.huge_pages + (", and torch asks for them" if asked else "")
    if machine.huge_pages == "always" or (machine.huge_pages == "madvise" and asked):
        return Answer(value)
    if machine.huge_pages == "madvise":
        return Answer(f"{value}, and torch does not ask", State.BETTER, "set THP_MEM_ALLOC_ENABLE=1 and measure again")
    if machine.huge_pages == "never":
        advice = "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (as root), and THP_MEM_ALLOC_ENABLE=1"
        return Answer(value, State.BETTER, advice)
    return Answer("not told", State.UNKNOWN, "this kernel shows no setting of transparent huge pages")
