"""What else the machine does while we measure, from Linux's own counters."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from nhwc.timing import Load

_STAT = Path("/proc/stat")
_CGROUP_STATS = (Path("/sys/fs/cgroup/cpu.stat"), Path("/sys/fs/cgroup/cpu/cpu.stat"))
_BUSY, _STOLEN = (0, 1, 2, 5, 6), 7  # user, nice, system, irq, softirq; steal


@dataclass(frozen=True)
class _Counters:
    wall_s: float
    busy_s: float
    stolen_s: float
    own_s: float
    throttled_s: float


class LoadMeter:
    """Counts from its making on; ``read`` says what happened since. None on systems without these counters."""

    def __init__(self, stat: Path = _STAT, cgroup_stats: tuple[Path, ...] = _CGROUP_STATS) -> None:
        self._stat = stat
        self._cgroup_stats = cgroup_stats
        self._start = self._counters()

    def read(self, threads: int) -> Load | None:
        """The load since this meter was made, beside a measurement that used ``threads`` threads."""
        now = self._counters()
        if now is None or self._start is None or now.wall_s <= self._start.wall_s:
            return None
        wall = now.wall_s - self._start.wall_s
        own = now.own_s - self._start.own_s
        return Load(
            cores=float(os.cpu_count() or 1),
            threads=threads,
            others=max(0.0, (now.busy_s - self._start.busy_s - own) / wall),
            stolen=max(0.0, (now.stolen_s - self._start.stolen_s) / wall),
            throttled=max(0.0, (now.throttled_s - self._start.throttled_s) / wall),
        )

    def _counters(self) -> _Counters | None:
        try:
            fields = [int(word) for word in self._stat.read_text().split("\n", 1)[0].split()[1:]]
            tick = os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError):
            return None
        import resource  # not on Windows, which has no /proc/stat either

        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return _Counters(
            wall_s=time.monotonic(),
            busy_s=sum(fields[place] for place in _BUSY) / tick,
            stolen_s=fields[_STOLEN] / tick if len(fields) > _STOLEN else 0.0,
            own_s=sum(each.ru_utime + each.ru_stime for each in used),
            throttled_s=self._throttled_s(),
        )

    def _throttled_s(self) -> float:
        for path in self._cgroup_stats:
            try:
                values = dict(line.split() for line in path.read_text().splitlines())
            except (OSError, ValueError):
                continue
            if "throttled_usec" in values:  # cgroup v2
                return int(values["throttled_usec"]) / 1e6
            if "throttled_time" in values:  # cgroup v1, nanoseconds
                return int(values["throttled_time"]) / 1e9
        return 0.0
