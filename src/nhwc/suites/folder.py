"""The folder of a suite: what was asked for, one file for each finished measurement, one for each that failed.

``suite.json`` says what every measurement in the folder was asked for, and on which machine, so that a run that
resumes adds to it only what can stand beside it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nhwc.errors import SchemaError, TargetError
from nhwc.schema import load_bench
from nhwc.schema.document import load_document
from nhwc.schema.typed import Reader, plain
from nhwc.suite import Suite, SuiteResult, SuiteRow
from nhwc.suites.files import write_whole
from nhwc.suites.selection import MODES, Job, jobs
from nhwc.timing import Benchmark, Conditions

SUITE_FORMAT = "nhwc-suite"
FAILURE_FORMAT = "nhwc-suite-failure"
_REMEDY = "take another folder"


class Folder:
    """One folder of results. Nothing is written before ``open``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self, suite: Suite, settings: Mapping[str, str], conditions: Conditions) -> None:
        """Make the folder, or make sure that what is in it was asked for alike, on this machine.

        Raises TargetError where it was not, or where the folder cannot be written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TargetError(
                f"the folder {self.path} cannot be made: {_in_the_way(self.path) or error.strerror}"
            ) from error
        if not self._manifest.exists():
            document = {
                "format": SUITE_FORMAT,
                "version": 1,
                "suite": suite.name,
                "settings": dict(settings),
                "conditions": plain(conditions),
            }
            write_whole(self._manifest, json.dumps(document, indent=1) + "\n")
            return
        name, asked, found = self._read_manifest()
        apart = _apart({"suite": name, **asked}, {"suite": suite.name, **settings})
        if apart:
            raise TargetError(
                f"{self.path} holds a run with other settings ({apart}); give those, or another folder by --folder"
            )
        apart = _apart(_flat(found), _flat(conditions))
        if apart:
            raise TargetError(
                f"{self.path} holds a run under other conditions ({apart}); times of two machines do not mix, so give "
                "another folder by --folder"
            )

    def finished(self, job: Job) -> bool:
        """Whether the job's measurement is there, be it damaged: what took time to measure is not measured over."""
        return self._result(job).exists()

    def damage(self, job: Job) -> str:
        """What is wrong with the file of the job's measurement, and what to do; empty where nothing is."""
        try:
            self.load(job)
        except SchemaError as error:
            return f"{str(error).rstrip('.')}; delete {self._result(job)} to measure it again"
        return ""

    def load(self, job: Job) -> Benchmark | None:
        """The job's measurement, None where it was not finished. Raises SchemaError where its file is damaged."""
        path = self._result(job)
        return load_bench(path) if path.exists() else None

    def failure(self, job: Job) -> str:
        """Why the job's last try has no measurement; empty where there was no try, or it was finished."""
        path = self._failure(job)
        return _read_failure(path) if path.exists() and not self._result(job).exists() else ""

    def keep(self, job: Job, text: str) -> None:
        """Write a finished measurement, which ``text`` holds as JSON."""
        write_whole(self._result(job), text.rstrip("\n") + "\n")
        self._failure(job).unlink(missing_ok=True)

    def keep_failure(self, job: Job, sentence: str) -> None:
        """Write why a job has no measurement."""
        document = {"format": FAILURE_FORMAT, "version": 1, "failure": sentence}
        write_whole(self._failure(job), json.dumps(document) + "\n")

    def write(self, name: str, text: str) -> Path:
        """Write a page, a picture or a table beside the measurements."""
        write_whole(self.path / name, text)
        return self.path / name

    def row(self, job: Job, device: str) -> SuiteRow | None:
        """What became of a job, beside what is claimed for ``device``; None where it was not tried.

        A damaged file is a failure that says so.
        """
        damage = self.damage(job)
        benchmark, failure = (None, damage) if damage else (self.load(job), self.failure(job))
        if benchmark is None and not failure:
            return None
        return SuiteRow(job.model.name, job.mode, job.model.claim(device), benchmark, failure)

    def result(self, suite: Suite, wanted: Sequence[Job]) -> SuiteResult:
        """Everything that is there; what is not there of ``wanted`` counts as missing.

        Raises TargetError where this is no folder of the suite, SchemaError where ``suite.json`` is damaged.
        """
        if not self._manifest.exists():
            raise TargetError(f"{self.path} holds no run of a suite; run it first, or name its folder by --folder")
        name, settings, conditions = self._read_manifest()
        if name != suite.name:
            raise TargetError(f"{self.path} holds a run of the suite {name}, not {suite.name}")
        found = {job: self.row(job, conditions.device) for job in jobs(suite)}
        return SuiteResult(
            suite.name,
            suite.about,
            tuple(settings.items()),
            conditions,
            tuple(row for mode in MODES for job, row in found.items() if row is not None and job.mode == mode),
            sum(found[job] is None for job in wanted),
        )

    @property
    def _manifest(self) -> Path:
        return self.path / "suite.json"

    def _result(self, job: Job) -> Path:
        return self.path / f"{job.model.name}.{job.mode}.json"

    def _failure(self, job: Job) -> Path:
        return self.path / f"{job.model.name}.{job.mode}.failed.json"

    def _read_manifest(self) -> tuple[str, dict[str, str], Conditions]:
        def read(document: Mapping[str, Any]) -> tuple[str, dict[str, str], Conditions]:
            settings = {str(name): str(value) for name, value in document["settings"].items()}
            return str(document["suite"]), settings, Reader().read_fields(Conditions, document["conditions"])

        found: tuple[str, dict[str, str], Conditions] = load_document(
            self._manifest, SUITE_FORMAT, {1: read}, remedy=_REMEDY
        )
        return found


def _in_the_way(path: Path) -> str:
    """The file that stands where a folder should be, as a reason; empty where there is none."""
    blocking = next((each for each in (path, *path.parents) if each.is_file()), None)
    return "" if blocking is None else f"{blocking} is a file; name another folder, or move that file"


def _read_failure(path: Path) -> str:
    try:
        return str(load_document(path, FAILURE_FORMAT, {1: lambda document: document["failure"]}, remedy=_REMEDY))
    except SchemaError:
        return "its last try failed, and the file that says why is damaged"


def _flat(conditions: Conditions) -> dict[str, str]:
    single = ("device", "processor", "cores", "threads", "system", "allocator")
    return {
        **{name: str(getattr(conditions, name)) for name in single},
        **dict(conditions.versions),
        **dict(conditions.settings),
    }


def _apart(there: Mapping[str, str], here: Mapping[str, str]) -> str:
    """What differs, as "name: there, here now"."""
    return "; ".join(
        f"{name}: {there.get(name, 'not given')} there, {here.get(name, 'not given')} now"
        for name in dict.fromkeys([*there, *here])
        if there.get(name) != here.get(name)
    )
