"""A suite leaves whole files whatever ends it, resumes where it was, and lets no model end another's measurement."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from report import bench_sample
from suites import tiny

from nhwc.errors import RegistryError, TargetError
from nhwc.suite import Standing
from nhwc.suites import Folder, jobs, suite_named
from nhwc.suites.files import write_whole
from nhwc.suites.tutorial import ICE_LAKE, ON_ICE_LAKE, ON_VOLTA, VOLTA
from nhwc.timing import Ratio


@pytest.fixture(autouse=True)
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "log"
    monkeypatch.setenv("STAND_IN_LOG", str(path))
    return path


def ran(log: Path) -> list[str]:
    return log.read_text(encoding="utf-8").split("\n")[:-1]


def is_locked(folder: Path) -> bool:
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_each_model_leaves_its_measurement_in_a_file_of_its_own(tmp_path: Path) -> None:
    folder, told = tiny.measure(tmp_path / "out", "a", "b", modes=("inference", "training"))
    assert told == ["a inference", "a training", "b inference", "b training"]
    for job in jobs(tiny.suite("a", "b")):
        assert folder.load(job) == bench_sample.faster()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("raises", "the model raised ValueError: no"),
        ("killed", "its process was ended by SIGKILL, as the system does where memory runs out"),
        ("silent", "its process ended with exit code 3 and said nothing"),
        ("babbles", "its answer is no measurement: "),
    ],
)
def test_a_model_that_fails_leaves_one_sentence_and_the_others_run(name: str, sentence: str, tmp_path: Path) -> None:
    folder, _ = tiny.measure(tmp_path / "out", "a", name, "b")
    first, failing, last = jobs(tiny.suite("a", name, "b"), modes=["inference"])
    assert folder.failure(failing).startswith(sentence)
    assert "--debug" not in folder.failure(failing)
    assert "\n" not in folder.failure(failing)
    assert folder.load(failing) is None
    assert folder.load(first) == folder.load(last) == bench_sample.faster()


def test_an_exit_code_that_is_a_verdict_is_a_measurement_all_the_same(tmp_path: Path) -> None:
    folder, _ = tiny.measure(tmp_path / "out", "slower")
    (job,) = jobs(tiny.suite("slower"), modes=["inference"])
    assert folder.load(job) == bench_sample.slower()


def test_a_second_run_measures_only_what_is_missing_and_what_failed(tmp_path: Path, log: Path) -> None:
    tiny.measure(tmp_path / "out", "a", "raises")
    assert tiny.measure(tmp_path / "out", "a", "raises", "b")[1] == ["raises inference", "b inference"]
    assert ran(log) == ["a inference", "raises inference", "raises inference", "b inference"]


def test_a_failure_is_forgotten_once_the_model_runs(tmp_path: Path) -> None:
    folder, _ = tiny.measure(tmp_path / "out", "a")
    (job,) = jobs(tiny.suite("raises"), modes=["inference"])
    folder.keep_failure(job, "it raised")
    assert folder.failure(job) == "it raised"
    folder.keep(job, (tmp_path / "out" / "a.inference.json").read_text(encoding="utf-8"))
    assert folder.failure(job) == ""
    assert list(folder.path.glob("*.failed.json")) == []


def test_a_run_that_is_killed_resumes_where_it_was_and_loses_no_finished_sample(tmp_path: Path, log: Path) -> None:
    out = tmp_path / "out"
    source = str(Path(__file__).parents[2] / "src")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([source, str(Path(__file__).parents[1])])}
    victim = subprocess.Popen([sys.executable, tiny.__file__, str(out), "a", "b", "slow", "c"], env=env)
    try:
        limit = time.monotonic() + 60
        while not (log.exists() and "slow inference" in ran(log)):
            assert time.monotonic() < limit
            assert victim.poll() is None
            time.sleep(0.02)
    finally:
        victim.kill()
        victim.wait()
    kept = {path.name: path.read_bytes() for path in out.glob("*.inference.json")}
    assert sorted(kept) == ["a.inference.json", "b.inference.json"]
    while is_locked(out):  # until the system has ended the stand-in, which holds the folder too, with its parent
        assert time.monotonic() < limit
        time.sleep(0.02)
    assert tiny.measure(out, "a", "b", "c")[1] == ["c inference"]
    assert ran(log) == ["a inference", "b inference", "slow inference", "c inference"]
    assert {name: (out / name).read_bytes() for name in kept} == kept


def test_what_a_killed_run_left_half_written_counts_for_nothing(tmp_path: Path) -> None:
    tiny.measure(tmp_path / "out", "a")
    (tmp_path / "out" / ".b.inference.json.part").write_text('{"format": "nhwc-ben')
    folder, told = tiny.measure(tmp_path / "out", "a", "b")
    assert told == ["b inference"]
    assert folder.load(jobs(tiny.suite("a", "b"))[2]) == bench_sample.faster()


def test_two_runs_at_a_time_are_refused(tmp_path: Path) -> None:
    tiny.measure(tmp_path / "out", "a")
    with (tmp_path / "out" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(TargetError, match="another run measures into"):
            tiny.measure(tmp_path / "out", "a", "b")


def test_other_settings_are_refused_with_what_differs(tmp_path: Path) -> None:
    tiny.measure(tmp_path / "out", "a")
    with pytest.raises(TargetError, match=r"other settings \(batch: 8 there, 1 now; seed: not given there, 3 now\)"):
        Folder(tmp_path / "out").open(
            tiny.suite("a"), {**tiny.SETTINGS, "batch": "1", "seed": "3"}, bench_sample.CONDITIONS
        )


def test_another_machine_is_refused_with_what_differs(tmp_path: Path) -> None:
    tiny.measure(tmp_path / "out", "a")
    here = replace(bench_sample.CONDITIONS, threads=1, versions=(("torch", "2.15.0"),))
    with pytest.raises(
        TargetError, match=r"other conditions \(threads: 2 there, 1 now; torch: 2.14.1 there, 2.15.0 now"
    ):
        Folder(tmp_path / "out").open(tiny.suite("a"), tiny.SETTINGS, here)


def test_another_suite_is_refused(tmp_path: Path) -> None:
    tiny.measure(tmp_path / "out", "a")
    with pytest.raises(TargetError, match="suite: tiny there, tutorial now"):
        Folder(tmp_path / "out").open(suite_named("tutorial"), tiny.SETTINGS, bench_sample.CONDITIONS)


def test_a_full_disk_is_one_sentence_and_what_was_finished_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.measure(tmp_path / "out", "a")

    def full(_handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(TargetError, match=r"b\.inference\.json cannot be written: No space left on device"):
        tiny.measure(tmp_path / "out", "a", "b")
    monkeypatch.undo()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [".lock", "a.inference.json", "suite.json"]


def test_a_file_is_whole_or_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file.json"
    write_whole(path, "first")

    def interrupted(_handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_whole(path, "second")
    assert path.read_text() == "first"
    assert list(tmp_path.glob(".*.part")) == []


def test_a_file_in_the_place_of_the_folder_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(TargetError, match=r"cannot be made: .*out is a file; name another folder, or move that file"):
        tiny.measure(tmp_path / "out", "a")
    with pytest.raises(TargetError, match=r"below cannot be made: .*out is a file; name another"):
        tiny.measure(tmp_path / "out" / "below", "a")


def test_a_damaged_measurement_is_named_not_measured_over(tmp_path: Path) -> None:
    tiny.measure(tmp_path / "out", "a")
    (tmp_path / "out" / "a.inference.json").write_text("{")
    folder, told = tiny.measure(tmp_path / "out", "a", "b")
    assert told == ["b inference"]
    result = folder.result(tiny.suite("a", "b"), jobs(tiny.suite("a", "b"), modes=["inference"]))
    assert [(row.model, row.benchmark is None) for row in result.rows] == [("a", True), ("b", False)]
    assert "a.inference.json' is not JSON" in result.rows[0].failure
    assert result.rows[0].failure.endswith(
        "; delete " + str(tmp_path / "out" / "a.inference.json") + " to measure it again"
    )
    assert (tmp_path / "out" / "a.inference.json").read_text() == "{"


def test_the_result_holds_all_that_is_there_and_counts_what_is_missing(tmp_path: Path) -> None:
    made = tiny.suite("a", "raises", "c")
    folder, _ = tiny.measure(tmp_path / "out", "a", "raises")
    result = folder.result(made, jobs(made, modes=["inference"]))
    assert [(row.model, bool(row.failure)) for row in result.rows] == [("a", False), ("raises", True)]
    assert result.missing == 1
    assert result.rows[0].ratio == bench_sample.FASTER
    assert result.rows[0].claim == tiny.CLAIM
    assert dict(result.settings) == tiny.SETTINGS


def test_a_folder_without_a_run_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="holds no run of a suite"):
        Folder(tmp_path).result(tiny.suite("a"), ())


def test_the_tutorial_s_lists_have_their_lengths() -> None:
    assert (len(ON_VOLTA), len(ON_ICE_LAKE), len(ON_VOLTA | ON_ICE_LAKE)) == (28, 29, 34)
    models = {model.name: model for model in suite_named("tutorial").models}
    assert len(models) == 34
    assert models["mobilenet_v2"].claim("cpu") is None
    assert models["mobilenet_v2"].claim("cuda NVIDIA H200") == VOLTA
    assert models["densenet121"].claim("cuda:1") is None
    assert models["resnet50"].claim("cpu") == ICE_LAKE
    assert (ICE_LAKE.low, ICE_LAKE.high, VOLTA.low, VOLTA.high) == (1.26, 1.76, 1.08, 1.35)


def test_every_model_of_the_tutorial_is_in_torchvision() -> None:
    from torchvision.models import list_models

    assert {model.target for model in suite_named("tutorial").models} <= set(list_models())


@pytest.mark.parametrize(
    ("low", "high", "standing"),
    [
        (1.0, 1.2, Standing.BELOW),
        (1.8, 1.9, Standing.ABOVE),
        (1.3, 1.4, Standing.WITHIN),
        (1.2, 1.3, Standing.ACROSS),
        (1.0, 2.0, Standing.ACROSS),
    ],
)
def test_where_an_interval_lies_against_a_claim(low: float, high: float, standing: Standing) -> None:
    assert ICE_LAKE.standing(Ratio((low + high) / 2, low, high, 9)) is standing


def test_a_selection_names_only_what_there_is() -> None:
    suite = suite_named("tutorial")
    assert len(jobs(suite)) == 68
    assert [job.name for job in jobs(suite, ["vgg11", "alexnet"], ["training"])] == [
        "alexnet training",
        "vgg11 training",
    ]
    with pytest.raises(RegistryError, match=r"has no model 'resnet51'; did you mean resnet5?"):
        jobs(suite, ["resnet51"])
    with pytest.raises(RegistryError, match="the modes are inference and training"):
        jobs(suite, modes=["evaluation"])
    with pytest.raises(RegistryError, match="no suite 'timm'; the known ones are tutorial"):
        suite_named("timm")
