"""Machines that do not exist: folders as the kernel would show them, and snapshots with other values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nhwc.machine.build import Build
from nhwc.machine.cgroups import Limits
from nhwc.machine.cores import Cores
from nhwc.machine.snapshot import Snapshot
from nhwc.machine.sources import Sources

BUILD = Build("2.14.1", "", "", False, "Release", "mkl", "3.12.0", "OpenMP")
XEON = frozenset({"avx2", "fma", "f16c", "avx512f", "avx512vl", "avx512bw", "avx512dq", "avx512_vnni"})
SETTINGS = {
    "ATen instruction set": "AVX512",
    "oneDNN": "True",
    "oneDNN fp32 precision of convolutions": "none",
    "deterministic algorithms": "False",
}


def made_up(**changes: Any) -> Snapshot:
    """A machine on which nothing is wrong, but for what is changed."""
    fine = Snapshot(
        system="Linux",
        processor="a processor",
        flags=XEON | {"avx512_bf16", "avx512_fp16"},
        environ={},
        cores=Cores(4, 4, 4, None),
        limits=Limits(version=2),
        threads=4,
        build=BUILD,
        capability="AVX512",
        allocator="tcmalloc",
        onednn_isa="Intel AVX-512",
        openmp=("libgomp.so.1",),
        huge_pages="always",
        settings=SETTINGS,
    )
    return replace(fine, **changes)


@dataclass
class Tree:
    """A folder that stands for the file systems of a machine."""

    root: Path
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def proc(self) -> Path:
        return self.root / "proc"

    @property
    def groups(self) -> Path:
        return self.root / "cgroup"

    def write(self, files: Mapping[str, str]) -> None:
        """Files by their path below the root."""
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def version_two(self, group: str, root: str = "/") -> None:
        """The process is in ``group`` of a version 2 hierarchy, mounted from ``root`` of it."""
        mount = f"30 23 0:26 {root} {self.groups} rw,nosuid - cgroup2 cgroup2 rw\n"
        self.write({"proc/self/cgroup": f"0::{group}\n", "proc/self/mountinfo": mount})
        self.groups.mkdir(exist_ok=True)

    def version_one(self, group: str, root: str = "/") -> None:
        """The process is in ``group`` of the processor's and the memory's hierarchies, as docker mounts them."""
        mounts = "".join(
            f"3{place} 23 0:2{place} {root} {self.groups}/{name} rw - cgroup cgroup rw,{name}\n"
            for place, name in enumerate(("cpu,cpuacct", "memory"))
        )
        lines = f"4:memory:{group}\n3:cpu,cpuacct:{group}\n0::/\n"
        self.write({"proc/self/cgroup": lines, "proc/self/mountinfo": mounts})
        for name in ("cpu,cpuacct", "memory"):
            (self.groups / name).mkdir(parents=True, exist_ok=True)

    def siblings(self, *cores: str) -> None:
        """Which hardware threads share a core, one list a hardware thread: "0,2" for both of them."""
        for number, shared in enumerate(cores):
            self.write({f"sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list": shared + "\n"})

    def sources(self, **changes: Any) -> Sources:
        found = Sources(
            proc=self.proc,
            sys=self.root / "sys",
            environ=self.environ,
            library_folders=(self.root / "lib",),
            system="Linux",
            logical=4,
            affinity=lambda: frozenset(range(4)),
        )
        return replace(found, **changes)
