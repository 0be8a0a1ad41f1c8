"""What the control groups of Linux allow this process: processor time and memory, in version 1 and version 2.

A limit holds for a group and all below it, so that the tightest one on the way up to the root counts. Where a container
hides its group's own folder, the mount point stands for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from nhwc.machine.sources import Sources, numbers_of, text_of

# version 1 writes "no limit" as the greatest number of whole pages
_NO_LIMIT = 1 << 60


@dataclass(frozen=True)
class Limits:
    """cores: processor time as a number of cores, None without a quota. memory_bytes: None without a limit.

    periods, throttled: scheduling periods that were counted, and those in which the group had to wait.
    version: 2 or 1 of the group that was read, None where there is none.
    """

    cores: float | None = None
    memory_bytes: int | None = None
    periods: int = 0
    throttled: int = 0
    version: int | None = None


def limits(sources: Sources) -> Limits:
    """The limits of this process's control groups."""
    processor, memory = _folders(sources, "cpu"), _folders(sources, "memory")
    quotas = [quota for folder in processor if (quota := _cores(folder)) is not None]
    sizes = [size for folder in memory if (size := _bytes(folder)) is not None]
    counts = [numbers_of(folder / "cpu.stat") for folder in processor]
    worst = max(counts, key=lambda count: count.get("nr_throttled", 0), default={})
    version = None
    if processor:
        version = 2 if (processor[-1] / "cgroup.controllers").exists() or (processor[0] / "cpu.max").exists() else 1
    return Limits(
        min(quotas, default=None),
        min(sizes, default=None),
        worst.get("nr_periods", 0),
        worst.get("nr_throttled", 0),
        version,
    )


def _cores(folder: Path) -> float | None:
    two = (text_of(folder / "cpu.max") or "").split()
    if len(two) == 2 and two[0].isdigit() and two[1].isdigit():
        return int(two[0]) / int(two[1])
    quota, period = text_of(folder / "cpu.cfs_quota_us"), text_of(folder / "cpu.cfs_period_us")
    if quota and period and quota.isdigit() and period.isdigit() and int(period):  # -1 is no quota
        return int(quota) / int(period)
    return None


def _bytes(folder: Path) -> int | None:
    for name in ("memory.max", "memory.limit_in_bytes"):
        text = text_of(folder / name)
        if text and text.isdigit() and int(text) < _NO_LIMIT:
            return int(text)
    return None


def _folders(sources: Sources, controller: str) -> list[Path]:
    """This process's group for a controller and the groups above it, up to the mount point; version 1 wins."""
    found: list[Path] = []
    groups = _groups(sources)
    for root, point, names in _mounts(sources):
        key = controller if controller in names else "" if names == {"cgroup2"} else None
        if key is None or key not in groups:
            continue
        path = PurePosixPath(groups[key])
        inside = path.is_relative_to(root) and ".." not in path.parts
        own = point / path.relative_to(root) if inside else point
        own = own if own.is_dir() else point
        chain = [own, *(folder for folder in own.parents if folder.is_relative_to(point))]
        found = chain if key else found or chain
    return found


def _groups(sources: Sources) -> dict[str, str]:
    """Controller → path of this process's group; the empty name is version 2."""
    groups = {}
    for line in (text_of(sources.proc / "self" / "cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        names, separator, path = rest.partition(":")
        if separator:
            groups.update(dict.fromkeys(names.split(","), path))
    return groups


def _mounts(sources: Sources) -> list[tuple[str, Path, set[str]]]:
    """(root within the hierarchy, mount point, controllers, or {"cgroup2"}) of every mounted hierarchy."""
    mounts = []
    for line in (text_of(sources.proc / "self" / "mountinfo") or "").splitlines():
        before, separator, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if not separator or len(fields) < 5 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        names = {"cgroup2"} if kind[0] == "cgroup2" else set(kind[2].split(","))
        mounts.append((fields[3], Path(fields[4].replace("\\040", " ")), names))
    return mounts
