"""Measured times between processes: kept per machine, merged, damaged files set aside."""

import json
import multiprocessing
from pathlib import Path

import pytest

from nhwc.inference import measurements
from nhwc.inference.measurements import Measurements


def test_what_one_saves_another_reads(tmp_path: Path) -> None:
    first = Measurements("a machine", tmp_path)
    first.put("request", {"direct": 1.5})
    first.save()
    assert Measurements("a machine", tmp_path).get("request") == {"direct": 1.5}
    assert Measurements("another machine", tmp_path).get("request") is None


def test_two_writers_keep_both(tmp_path: Path) -> None:
    one, other = Measurements("m", tmp_path), Measurements("m", tmp_path)
    one.put("a", {"x": 1.0})
    other.put("b", {"y": 2.0})
    one.save()
    other.save()
    last = Measurements("m", tmp_path)
    assert (last.get("a"), last.get("b")) == ({"x": 1.0}, {"y": 2.0})


def write(folder: Path, name: str) -> None:
    for turn in range(20):
        each = Measurements("m", folder)
        each.put(f"{name}{turn}", {"x": float(turn)})
        each.save()


def test_writers_at_the_same_time_leave_a_whole_file(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=write, args=(tmp_path, name)) for name in "ab"]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    (path,) = tmp_path.glob("*.json")
    assert json.loads(path.read_text())["version"] == measurements.VERSION
    assert not list(tmp_path.glob("*.damaged"))
    assert not list(tmp_path.glob("*.tmp"))


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": "other"}', '{"times": 3}'])
def test_a_damaged_file_is_set_aside(tmp_path: Path, content: str) -> None:
    first = Measurements("m", tmp_path)
    assert first.path is not None
    first.path.write_text(content)
    second = Measurements("m", tmp_path)
    assert second.get("request") is None
    assert first.path.with_suffix(".damaged").read_text() == content
    second.put("request", {"x": 1.0})
    second.save()
    assert Measurements("m", tmp_path).get("request") == {"x": 1.0}


def test_the_folder_is_the_environments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NHWC_CACHE", str(tmp_path))
    assert measurements.folder() == tmp_path
    monkeypatch.setenv("NHWC_CACHE", "0")
    assert measurements.folder() is None
    monkeypatch.delenv("NHWC_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert measurements.folder() == tmp_path / "nhwc"


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    each = Measurements("m", tmp_path / "file")
    each.put("request", {"x": 1.0})
    each.save()
    assert each.get("request") == {"x": 1.0}
