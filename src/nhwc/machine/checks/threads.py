"""Checks of threads against cores and the limits of the control group."""

from __future__ import annotations

import math

from nhwc.health import State
from nhwc.machine.checks.registry import Answer, check
from nhwc.machine.snapshot import Snapshot

_SUBJECT = "threads"
_THROTTLED_SHARE = 0.01
_COUNTS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


def best_threads(machine: Snapshot) -> int:
    """One thread a core that is there: hardware threads share the units that multiply."""
    physical = machine.cores.physical or machine.cores.allowed
    return max(1, min(physical, math.floor(machine.cores.available)))


@check(_SUBJECT, "cores")
def cores(machine: Snapshot) -> Answer:
    """Hardware threads and cores, and how many of them this process may use."""
    found = machine.cores
    of = "" if found.allowed == found.logical else f" of {found.logical}"
    physical = "" if found.physical is None else f" on {found.physical} cores"
    value = f"{found.allowed}{of} hardware threads{physical}"
    if found.allowed < found.logical:
        return Answer(value, State.BETTER, "the affinity mask leaves some out: widen it (taskset, cpuset) if you can")
    return Answer(value)


@check(_SUBJECT, "processor quota")
def quota(machine: Snapshot) -> Answer:
    """What the control group grants."""
    found = machine.cores.quota
    if found is None:
        if machine.limits.version is None and machine.system == "Linux":
            return Answer("not told", State.UNKNOWN, "no control group of this process was found under its mounts")
        return Answer("none")
    value = f"{found:g} cores (control group version {machine.limits.version})"
    if found < machine.cores.allowed:
        return Answer(value, State.BETTER, f"raise the container's limit, or run {best_threads(machine)} threads")
    return Answer(value)


@check(_SUBJECT, "throttling")
def throttling(machine: Snapshot) -> Answer | None:
    """How often the kernel stopped the group because its quota was used up."""
    found = machine.limits
    if found.cores is None:
        return None
    share = found.throttled / found.periods if found.periods else 0.0
    value = f"in {found.throttled} of {found.periods} periods ({100 * share:.1f} %)"
    if share > _THROTTLED_SHARE:
        advice = f"raise the limit or run {best_threads(machine)} threads: every stop shows in the times as noise"
        return Answer(value, State.WRONG, advice)
    return Answer(value)


@check(_SUBJECT, "torch's threads")
def threads(machine: Snapshot) -> Answer:
    """How many threads an operator runs on, against the cores that are there."""
    best, available = best_threads(machine), machine.cores.available
    value = f"{machine.threads}, for {available:g} available cores"
    if machine.threads > math.ceil(available):
        advice = f"set OMP_NUM_THREADS={best}: more threads than cores wait for each other"
        return Answer(value, State.WRONG, advice)
    if machine.threads > best:
        return Answer(value, State.BETTER, f"try OMP_NUM_THREADS={best}, one a core: hardware threads share its units")
    if machine.threads < best:
        return Answer(value, State.BETTER, f"set OMP_NUM_THREADS={best}, unless other processes need the cores")
    return Answer(value)


@check(_SUBJECT, "other processes")
def others(machine: Snapshot) -> Answer | None:
    """Cores that other processes keep busy."""
    load = machine.load
    if load is None:
        return None
    value = f"{load.others:.1f} of {load.cores:g} cores busy"
    if load.is_crowded:
        return Answer(value, State.WRONG, "stop them before you measure: what is measured beside them tells nothing")
    return Answer(value)


@check(_SUBJECT, "thread counts set")
def counts(machine: Snapshot) -> Answer:
    """OMP_NUM_THREADS and MKL_NUM_THREADS."""
    given = {name: machine.environ[name] for name in _COUNTS if machine.environ.get(name)}
    value = " ".join(f"{name}={count}" for name, count in given.items()) or "none"
    wrong = [name for name, count in given.items() if not _is_count(count)]
    if wrong:
        return Answer(value, State.WRONG, f"set {wrong[0]} to a whole number above 0, or unset it")
    if len(set(given.values())) > 1:
        return Answer(
            value, State.BETTER, "give both one value: matrix products run on the second, all else on the first"
        )
    return Answer(value)


@check(_SUBJECT, "placement set")
def placement(machine: Snapshot) -> Answer:
    """Settings of where threads run and how they wait."""
    names = sorted(
        name for name in machine.environ if name.startswith(("KMP_", "GOMP_", "OMP_")) and name not in _COUNTS
    )
    value = " ".join(f"{name}={machine.environ[name]}" for name in names) or "none"
    intel = [name for name in names if name.startswith("KMP_")]
    if intel and machine.openmp and not any("iomp" in file or "libomp" in file for file in machine.openmp):
        advice = f"{intel[0]} has no effect on {machine.openmp[0]}: preload libiomp5.so, or set OMP_PROC_BIND"
        return Answer(value, State.BETTER, advice)
    return Answer(value)


def _is_count(text: str) -> bool:
    parts = text.split(",")  # nested levels
    return all(part.strip().isdigit() and int(part) > 0 for part in parts)
