"""Cores: how many the machine has, and how many this process may use."""

from __future__ import annotations

from dataclasses import dataclass

from nhwc.machine.cgroups import limits
from nhwc.machine.sources import Sources, text_of


@dataclass(frozen=True)
class Cores:
    """logical: hardware threads of the machine. allowed: those that the affinity mask leaves to this process.

    physical: cores behind the allowed ones, None where the system does not tell. quota: processor time that the
    control group grants, as a number of cores, None without a limit.
    """

    logical: int
    allowed: int
    physical: int | None
    quota: float | None

    @property
    def available(self) -> float:
        """What can run at once: the allowed processors, or less where the quota is smaller."""
        return float(self.allowed) if self.quota is None else min(float(self.allowed), self.quota)


def cores(sources: Sources | None = None) -> Cores:
    """The cores of the machine that ``sources`` describes, this one by default."""
    sources = sources or Sources()
    mask = sources.affinity()
    allowed = mask if mask is not None else frozenset(range(sources.logical))
    return Cores(sources.logical, len(allowed), _physical(sources, allowed), limits(sources).cores)


def available_cores(sources: Sources | None = None) -> float:
    """Cores that this process may keep busy at once: affinity mask and control-group quota; may be a fraction."""
    return cores(sources).available


def _physical(sources: Sources, allowed: frozenset[int]) -> int | None:
    """Cores behind the allowed hardware threads: siblings share one."""
    siblings = set()
    for number in allowed:
        topology = sources.sys / "devices" / "system" / "cpu" / f"cpu{number}" / "topology"
        names = text_of(topology / "core_cpus_list") or text_of(topology / "thread_siblings_list")
        if names is None:
            return None
        siblings.add(names)
    return len(siblings) or None
