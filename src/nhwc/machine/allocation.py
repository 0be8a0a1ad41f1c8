"""What another allocator would gain: a step with large outputs in two child processes, one with each, in turn.

The default allocator of glibc gives large blocks back to the kernel, which hands out every page of the next one anew.
Blocks of steps alternate in random order, with a rest before each, so that the threads of one child sleep while the
other runs, and what disturbs the machine disturbs both.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nhwc.machine.allocators import GLIBC, allocator_name, preloadable
from nhwc.machine.child import Child, ChildError, environ_for_python
from nhwc.machine.sources import Sources

_COMMAND = [sys.executable, "-P", "-m", "nhwc.machine.large_outputs"]
_START_S = 60.0
_ANSWER_S = 30.0
_REST_S = 0.1
_BLOCK_MS = 100.0
#: Settings of glibc's own allocator that keep freed memory: they avoid the same page faults with nothing installed.
TUNABLES = {
    "MALLOC_MMAP_THRESHOLD_": "1073741824",
    "MALLOC_TRIM_THRESHOLD_": "4294967296",
    "MALLOC_TOP_PAD_": "67108864",
}


@dataclass(frozen=True)
class Contest:
    """Two environments to compare: ``plain`` has glibc's allocator, ``other`` what takes its place.

    setting: what makes the other, as a shell takes it; "" where this process already has it.
    """

    plain: Mapping[str, str]
    other: Mapping[str, str]
    other_name: str
    setting: str


@dataclass(frozen=True)
class Samples:
    """Milliseconds and minor page faults per step, one of each a round, of the plain and the other allocator."""

    plain: str
    other: str
    setting: str
    plain_ms: tuple[float, ...] = ()
    other_ms: tuple[float, ...] = ()
    plain_faults: tuple[float, ...] = ()
    other_faults: tuple[float, ...] = ()


def contest(sources: Sources) -> Contest | None:
    """What to compare on this machine; None where it has no allocator of glibc, so that nothing can be preloaded."""
    serving = allocator_name(sources)
    environ = dict(sources.environ)
    if sources.system != "Linux" or serving in ("unknown", "musl malloc"):
        return None
    if serving != GLIBC:
        return Contest(_without_preload(environ), environ, serving, "")
    if tuned(environ):
        plain = {name: value for name, value in environ.items() if name not in (*TUNABLES, "GLIBC_TUNABLES")}
        return Contest(plain, environ, "glibc malloc as it is set here", "")
    libraries = preloadable(sources)
    if libraries:
        preload = ":".join([str(libraries[0]), *filter(None, [environ.get("LD_PRELOAD")])])
        name = _library_name(libraries[0])
        return Contest(environ, {**environ, "LD_PRELOAD": preload}, name, f"LD_PRELOAD={libraries[0]}")
    setting = " ".join(f"{name}={value}" for name, value in TUNABLES.items())
    return Contest(environ, {**environ, **TUNABLES}, "glibc malloc that keeps freed memory", setting)


def tuned(environ: Mapping[str, str]) -> bool:
    """Whether the environment sets glibc's allocator to keep what is freed, or anything else about it."""
    return any(name in environ for name in TUNABLES) or "glibc.malloc." in environ.get("GLIBC_TUNABLES", "")


def _library_name(path: Path) -> str:
    return path.name.removeprefix("lib").split(".so")[0].split("_")[0].split("-")[0]


def _without_preload(environ: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name != "LD_PRELOAD"}


def look(sources: Sources) -> dict[str, Any]:
    """What one child says of itself: "allocator", "onednn" (its info lines), "capability" (ATen's instruction set).

    Raises ChildError where it dies or is silent.
    """
    with Child("a process with a small convolution", _COMMAND, environ_for_python(sources.environ)) as child:
        answer: dict[str, Any] = child.ask({"hello": True}, _START_S)
        return answer


def measure(
    chosen: Contest, *, budget_s: float = 6.0, rounds: int = 16, fewest: int = 6, seed: int = 0
) -> tuple[Samples, dict[str, Any]]:
    """Samples of both allocators, and what the plain child said of itself.

    budget_s: seconds for the rounds, after both children have started; at least ``fewest`` rounds run.
    Raises ChildError where a child dies, is silent, or did not get its allocator.
    """
    with ExitStack() as stack:
        plain, other = (
            stack.enter_context(Child(f"the process with {name}", _COMMAND, environ_for_python(environ)))
            for name, environ in ((GLIBC, chosen.plain), (chosen.other_name, chosen.other))
        )
        for child in (plain, other):
            child.tell({"hello": True})
        said, others = plain.hear(_START_S), other.hear(_START_S)
        if said["allocator"] != GLIBC or (chosen.setting.startswith("LD_PRELOAD") and others["allocator"] == GLIBC):
            raise ChildError(
                f"preloading had no effect: the processes ran on {said['allocator']} and {others['allocator']}"
            )
        steps = _steps_of_a_block([plain, other])
        drawn = random.Random(seed)  # noqa: S311 - an order, no secret
        taken: dict[Child, list[dict[str, float]]] = {plain: [], other: []}
        end = time.monotonic() + budget_s
        for number in range(rounds):
            if number >= fewest and time.monotonic() > end:
                break
            for child in drawn.sample([plain, other], 2):
                time.sleep(_REST_S)
                taken[child].append(child.ask({"block": steps}, _ANSWER_S))
    return _samples(chosen, taken[plain], taken[other]), said


def _steps_of_a_block(children: Sequence[Child]) -> int:
    """Warm both up; how many steps last as long as a block should, by the faster one."""
    fastest = min(float(child.ask({"block": 3}, _ANSWER_S)["ms"]) for child in children)
    return max(1, round(_BLOCK_MS / fastest))


def _samples(chosen: Contest, plain: list[dict[str, float]], other: list[dict[str, float]]) -> Samples:
    columns = [tuple(sample[key] for sample in taken) for key in ("ms", "faults") for taken in (plain, other)]
    return Samples(GLIBC, chosen.other_name, chosen.setting, *columns)
