"""A suite of made-up models, and a run of it in a process of its own that a test may kill."""

from __future__ import annotations

import sys
from pathlib import Path

from report import bench_sample

from nhwc.suite import Claim, Suite, SuiteModel
from nhwc.suites import Folder, Job, jobs, run

STAND_IN = Path(__file__).with_name("stand_in.py")
CLAIM = Claim("cpu", "another machine", 1.26, 1.76)
SETTINGS = {"batch": "8", "budget": "1"}


def suite(*names: str) -> Suite:
    return Suite("tiny", "made-up models", tuple(SuiteModel(name, name, (CLAIM,)) for name in names))


def command(job: Job) -> list[str]:
    return [sys.executable, str(STAND_IN), job.model.target, job.mode]


def measure(path: Path, *names: str, modes: tuple[str, ...] = ("inference",)) -> tuple[Folder, list[str]]:
    """Run a suite of these models into ``path``; also the names of the jobs that were measured now."""
    made, folder, told = suite(*names), Folder(path), []
    folder.open(made, SETTINGS, bench_sample.CONDITIONS)
    run(jobs(made, modes=modes), folder, command, lambda job, _behind, _count: told.append(job.name), lambda _job: None)
    return folder, told


if __name__ == "__main__":
    measure(Path(sys.argv[1]), *sys.argv[2:])
