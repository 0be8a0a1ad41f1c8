"""Measured times between processes: kept per machine, merged, damaged files set aside, and nothing ever raised."""

import json
import multiprocessing
import os
import signal
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO

import pytest

from nhwc import kept_times
from nhwc.kept_times import KeptTimes


def times(where: Path | None, machine: str = "m") -> KeptTimes:
    return KeptTimes("nhwc test times", 1, "test", machine, where)


def test_what_one_saves_another_on_this_machine_reads(tmp_path: Path) -> None:
    first = times(tmp_path)
    first.put("request", {"direct": 1.5})
    first.save()
    assert times(tmp_path).get("request") == {"direct": 1.5}
    assert times(tmp_path, "another").get("request") is None
    assert first.messages == []


def test_two_writers_keep_both(tmp_path: Path) -> None:
    one, other = times(tmp_path), times(tmp_path)
    one.put("a", {"x": 1.0})
    other.put("b", {"y": 2.0})
    one.save()
    other.save()
    last = times(tmp_path)
    assert (last.get("a"), last.get("b")) == ({"x": 1.0}, {"y": 2.0})


def write(folder: Path, name: str) -> None:
    for turn in range(20):
        each = times(folder)
        each.put(f"{name}{turn}", {"x": float(turn)})
        each.save()


def test_writers_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=write, args=(tmp_path, name)) for name in "ab"]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    (path,) = tmp_path.glob("*.json")
    kept = json.loads(path.read_text())["times"]
    assert kept == {f"{name}{turn}": {"x": float(turn)} for name in "ab" for turn in range(20)}
    assert not list(tmp_path.glob("*.damaged"))
    assert not list(tmp_path.glob("*.tmp"))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_forked_while_one_writes_does_not_keep_the_lock(tmp_path: Path) -> None:
    fcntl = pytest.importorskip("fcntl")
    path = tmp_path / "times.json"
    with times(tmp_path)._locked(path):
        child = os.fork()
        if child == 0:
            signal.pause()
            os._exit(0)
    try:
        with path.with_suffix(".lock").open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_an_interrupt_waits_until_all_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what runs beside it without
    replacing, before = kept_times.replacing, signal.getsignal(signal.SIGINT)

    def interrupted(path: Path, part: Path) -> AbstractContextManager[IO[bytes]]:
        signal.raise_signal(signal.SIGINT)
        return replacing(path, part)

    monkeypatch.setattr(kept_times, "replacing", interrupted)
    first = times(tmp_path)
    first.put("request", {"direct": 1.5})
    with pytest.raises(KeyboardInterrupt):
        first.save()
    assert times(tmp_path).get("request") == {"direct": 1.5}
    assert signal.getsignal(signal.SIGINT) is before
    signal.signal(signal.SIGINT, told)


def die_while_writing(folder: Path) -> None:
    each = times(folder)
    each.put("late", {"x": 2.0})

    def die(_path: Path, part: Path) -> None:
        part.write_text("{")
        os.kill(os.getpid(), signal.SIGKILL)

    kept_times.replacing = die  # type: ignore[assignment]
    each.save()


def test_a_writer_that_is_killed_breaks_neither_file_nor_lock(tmp_path: Path) -> None:
    first = times(tmp_path)
    first.put("early", {"x": 1.0})
    first.save()
    process = multiprocessing.get_context("spawn").Process(target=die_while_writing, args=(tmp_path,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert list(tmp_path.glob("*.tmp"))
    after = times(tmp_path)
    assert (after.get("early"), after.get("late"), after.messages) == ({"x": 1.0}, None, [])
    after.put("next", {"x": 3.0})
    after.save()
    assert not list(tmp_path.glob("*.tmp"))
    assert times(tmp_path).get("next") == {"x": 3.0}


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": "other"}', '{"times": 3}', "\udcff"])
def test_a_damaged_or_foreign_file_is_set_aside_with_one_message(tmp_path: Path, content: str) -> None:
    first = times(tmp_path)
    assert first.path is not None
    first.path.write_bytes(content.encode("utf-8", "surrogateescape"))
    second = times(tmp_path)
    assert second.get("request") is None
    assert first.path.with_suffix(".damaged").read_bytes() == content.encode("utf-8", "surrogateescape")
    second.put("request", {"x": 1.0})
    second.save()
    assert times(tmp_path).get("request") == {"x": 1.0}
    (message,) = second.messages
    assert "set aside" in message


def test_the_folder_is_the_environments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NHWC_CACHE", str(tmp_path))
    assert kept_times.folder() == tmp_path
    monkeypatch.setenv("NHWC_CACHE", "0")
    assert kept_times.folder() is None
    monkeypatch.delenv("NHWC_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert kept_times.folder() == tmp_path / "nhwc"


def test_a_folder_that_cannot_be_written_costs_one_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")  # in place of the folder
    each = times(tmp_path / "file")
    each.put("request", {"x": 1.0})
    each.save()
    each.save()
    assert each.get("request") == {"x": 1.0}
    (message,) = each.messages
    assert "NHWC_CACHE" in message


def test_a_read_only_folder_costs_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_keywords: object) -> None:
        raise PermissionError(13, "Permission denied")

    each = times(tmp_path)
    each.put("request", {"x": 1.0})
    monkeypatch.setattr(Path, "open", refuse)
    each.save()
    each.save()
    (message,) = each.messages
    assert "Permission denied" in message
    assert each.get("request") == {"x": 1.0}
