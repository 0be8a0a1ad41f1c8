"""Checkpoints are whole or not there, whatever happens while one is written."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from training.runs import settings, train

from nhwc.errors import CheckpointError, TrainingError
from nhwc.training.checkpoints import Checkpoints, read


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """No file can grow beyond ``size`` bytes: what a full disk looks like to a program."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def made(tmp_path: Path) -> Checkpoints:
    checkpoints = Checkpoints(tmp_path / "run")
    checkpoints.prepare()
    return checkpoints


def test_last_previous_and_best(tmp_path: Path) -> None:
    checkpoints = made(tmp_path)
    for step in range(4):
        checkpoints.save({"step": step}, best=step == 1)
    found = [read(path)["step"] for path in (checkpoints.last, checkpoints.previous, checkpoints.best)]
    assert found == [3, 2, 1]
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["best.pt", "last.pt", "previous.pt"]


def test_a_disk_that_is_full_leaves_what_was_there(tmp_path: Path) -> None:
    checkpoints = made(tmp_path)
    checkpoints.save({"step": 1}, best=True)
    checkpoints.save({"step": 2}, best=False)
    with (
        files_of_at_most(10_000),
        pytest.raises(
            CheckpointError, match=r"last.pt cannot be written: File too large; .*last.pt is intact; make room"
        ),
    ):
        checkpoints.save({"step": 3, "weights": torch.zeros(100_000)}, best=False)
    assert checkpoints.load()[0]["step"] == 2
    assert read(checkpoints.previous)["step"] == 1
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["best.pt", "last.pt", "previous.pt"]


def test_a_first_checkpoint_on_a_full_disk(tmp_path: Path) -> None:
    with files_of_at_most(10_000), pytest.raises(CheckpointError, match="there is none before it"):
        made(tmp_path).save({"weights": torch.zeros(100_000)}, best=False)


@pytest.mark.parametrize("broken", ["replace", "link", "fsync"])
def test_a_failure_at_any_later_moment_leaves_a_whole_checkpoint(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = made(tmp_path)
    checkpoints.save({"step": 1}, best=False)

    def fails(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(*((Path, "replace", fails) if broken == "replace" else (os, broken, fails)))
    if broken == "link":  # a file system without a second name for a file: it is copied
        checkpoints.save({"step": 2}, best=True)
        assert [read(path)["step"] for path in (checkpoints.last, checkpoints.previous, checkpoints.best)] == [2, 1, 2]
        return
    with pytest.raises(CheckpointError, match="No space left on device"):
        checkpoints.save({"step": 2}, best=False)
    monkeypatch.undo()
    assert checkpoints.load()[0]["step"] == 1


def test_what_a_killed_run_left_half_written_is_cleared_away_and_nothing_else(tmp_path: Path) -> None:
    checkpoints = made(tmp_path)
    (tmp_path / "run" / ".last.pt.tmp").write_bytes(b"half")
    (tmp_path / "run" / ".mine.tmp").write_bytes(b"whole")
    checkpoints.prepare()
    assert [path.name for path in (tmp_path / "run").iterdir()] == [".mine.tmp"]


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file")
    with pytest.raises(CheckpointError, match="run cannot hold checkpoints"):
        made(tmp_path)


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("true",)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "cannot be read as a checkpoint"),
        (b"no zip", "cannot be read as a checkpoint"),
        ({"weights": torch.zeros(2)}, "is no checkpoint of nhwc train"),
        (torch.zeros(2), "is no checkpoint of nhwc train"),
        ({"kind": "nhwc training checkpoint", "version": 99}, "comes from a newer nhwc"),
        ({"kind": "nhwc training checkpoint", "version": 1, "evil": Evil()}, "cannot be read as a checkpoint: Unpick"),
    ],
    ids=["empty", "text", "other", "tensor", "newer", "code"],
)
def test_what_is_no_checkpoint(content: object, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "some.pt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(CheckpointError, match=sentence):
        read(path)


def test_two_damaged_ones(tmp_path: Path) -> None:
    checkpoints = made(tmp_path)
    checkpoints.last.write_bytes(b"")
    checkpoints.previous.write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"previous.pt cannot be read|last.pt cannot be read"):
        checkpoints.load()


def test_a_run_whose_disk_fills_ends_in_one_sentence_and_can_go_on(tmp_path: Path) -> None:
    whole = train(settings())
    train(settings(folder=tmp_path), stop_at=4)
    before = (tmp_path / "last.pt").read_bytes()
    with (
        files_of_at_most(len(before) - 1000),
        pytest.raises(CheckpointError, match=r"File too large; .*last.pt is intact"),
    ):
        train(settings(folder=tmp_path, resume=True))
    assert (tmp_path / "last.pt").read_bytes() == before
    assert train(settings(folder=tmp_path, resume=True)).losses() == {
        step: found for step, found in whole.losses().items() if step > 4
    }


def test_a_log_that_cannot_grow_ends_in_one_sentence(tmp_path: Path) -> None:
    train(settings(folder=tmp_path, epochs=1))
    size = (tmp_path / "log.jsonl").stat().st_size
    with (
        files_of_at_most(size + 2000),
        pytest.raises(TrainingError, match=r"log.jsonl cannot be written: File too large"),
    ):
        train(settings(folder=tmp_path, resume=True))


def flipped(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def test_a_single_flipped_bit_is_noticed(tmp_path: Path) -> None:
    checkpoints = made(tmp_path)
    weights = torch.full((1000,), 1.5)
    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)  # a caller who wants no checksums elsewhere
    try:
        checkpoints.save({"step": 1, "weights": weights}, best=False)
        assert not torch.serialization.get_crc32_options()
    finally:
        torch.serialization.set_crc32_options(before)
    checkpoints.save({"step": 2, "weights": weights}, best=False)
    content = checkpoints.last.read_bytes()
    flipped(checkpoints.last, content.index(weights.numpy().tobytes()) + 1000)
    with pytest.raises(CheckpointError, match=r"last.pt cannot be read as a checkpoint: .* is damaged"):
        read(checkpoints.last)
    state, path, said = checkpoints.load()
    assert (state["step"], path) == (1, checkpoints.previous)
    assert "is damaged" in said
