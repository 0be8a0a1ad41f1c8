"""One run in a folder at a time, whatever became of the one before."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from training.runs import certain, environment, settings, train

import nhwc
from nhwc.distributed import World
from nhwc.errors import CheckpointError
from nhwc.training import occupying
from nhwc.training.occupying import occupied

pytestmark = pytest.mark.usefixtures("few_threads")

HOLDS = """
import fcntl, os, sys, time
file = open(sys.argv[1], "a+")
fcntl.lockf(file, fcntl.LOCK_EX)
print(os.getpid(), file=file, flush=True)
print("held", flush=True)
if not os.fork():  # as a worker that reads data, which outlives a kill
    os.close(1)
    time.sleep(300)
time.sleep(300)
"""


def test_a_second_run_is_refused_until_the_first_is_killed(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(tmp_path / ".lock")],
        stdout=subprocess.PIPE,
        env=environment(),
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"held\n"
        sentence = (
            rf"^a run that still goes on \(process {process.pid}\) writes to {tmp_path}; wait for it, or name another"
        )
        with pytest.raises(CheckpointError, match=sentence):
            train(settings(folder=tmp_path))
        assert sorted(path.name for path in tmp_path.iterdir()) == [".lock"]
        process.kill()  # alone: what it has forked goes on
        process.wait()
        train(settings(folder=tmp_path, max_steps=1))
    finally:
        os.killpg(process.pid, 9)
        process.wait()
        process.stdout.close()
    assert (tmp_path / "last.pt").exists()


def test_a_run_inside_a_run_is_refused_and_the_lock_goes_with_the_run(tmp_path: Path) -> None:
    def model(classes: int) -> Any:
        made = certain(classes)
        made.register_forward_pre_hook(lambda *_: nhwc.train(certain, settings(folder=tmp_path, resume=True)))
        return made

    with pytest.raises(nhwc.errors.ModelError, match="a run that still goes on"):
        train(settings(folder=tmp_path), model)
    train(settings(folder=tmp_path, max_steps=1))
    judged = train(settings(folder=tmp_path, resume=True, evaluate_only=True))
    assert judged.evaluations


def test_an_evaluation_may_join_a_run(tmp_path: Path) -> None:
    train(settings(folder=tmp_path, max_steps=1))
    with occupied(tmp_path, 0.0):
        assert train(settings(folder=tmp_path, resume=True, evaluate_only=True)).evaluations
        with pytest.raises(CheckpointError, match="a run that still goes on"):
            train(settings(folder=tmp_path, resume=True))


def test_what_the_first_rank_finds_ends_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(occupying.ranks, "firsts", lambda _own: "a run that still goes on")
    second = occupying.alone(settings(folder=tmp_path), World(1, 1, 2))
    with pytest.raises(CheckpointError, match=r"^a run that still goes on$"), second:
        pass
    assert not list(tmp_path.iterdir())


def test_a_folder_without_locks_is_told_and_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    def unsupported(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", unsupported)
    said = f"{tmp_path} has no locks (No locks available): see to it that no other run writes there"
    assert said in train(settings(folder=tmp_path, max_steps=1)).notes
    assert (tmp_path / "last.pt").exists()
