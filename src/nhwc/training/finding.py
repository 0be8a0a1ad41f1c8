"""The checkpoint that a run goes on from, before anything is made that it is put into."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nhwc.errors import CheckpointError, NhwcError
from nhwc.training import ranks
from nhwc.training.checkpoints import Checkpoints, read
from nhwc.training.settings import TrainSettings
from nhwc.training.spelling import spelled


@dataclass(frozen=True)
class Found:
    """state: what the checkpoint holds. said: a sentence on where it was found."""

    state: dict[str, Any]
    said: str

    @property
    def memory_format(self) -> str | None:
        """Of the run that wrote it; None where an earlier nhwc chose it by rule and did not write it down."""
        asked = {"true": "channels_last", "false": "contiguous"}.get(self.state["settings"]["channels_last"])
        kept: str | None = self.state.get("memory_format", asked)
        return kept


def find(settings: TrainSettings, *, first: bool) -> Found | None:
    """The checkpoint to go on from; None where the run begins. All ranks call it, and the ``first`` looks.

    A run that torchrun starts anew, after it lost a process, goes on unasked. Raises CheckpointError where the folder
    holds another run, and where the checkpoint cannot be read.
    """
    found: Found | str | None = None
    if first:
        try:
            found = _look(settings)
        except NhwcError as error:
            found = str(error)
    found = ranks.firsts(found)
    if isinstance(found, str):
        raise CheckpointError(found)
    return found


def _look(settings: TrainSettings) -> Found | None:
    resume, doing = settings.resume, "evaluating" if settings.evaluate_only else "going on from"
    checkpoints = None if settings.folder is None else Checkpoints(settings.folder)
    if checkpoints is not None and not settings.evaluate_only:
        checkpoints.prepare()
    there = checkpoints is not None and checkpoints.exist()
    if there and checkpoints is not None and (resume is True or restarts() > 0):
        state, path, said = checkpoints.load()
        if resume is True or state["job"] == job():
            return Found(state, said or f"{doing} {path}")
    own = isinstance(resume, Path) and resume.resolve().parent == (settings.folder or Path()).resolve()
    if isinstance(resume, Path) and (own or not there or settings.evaluate_only):
        return Found(read(resume), f"{doing} {resume}")
    if settings.evaluate_only:
        raise CheckpointError(f"no checkpoint in {settings.folder}: there is nothing to evaluate")
    if there:
        raise CheckpointError(
            f"{settings.folder} holds the checkpoints of an earlier run; go on from them with "
            f"{spelled('resume')}, or name another folder"
        )
    return None


def restarts() -> int:
    """How often torchrun has started this job anew."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def job() -> str:
    """What stays the same as long as torchrun restarts a job: its id, and the process that starts this one."""
    return f"{os.environ.get('TORCHELASTIC_RUN_ID', '')}:{os.getppid()}"
