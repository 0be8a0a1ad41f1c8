"""``nhwc bench``: from the command line to what is measured, compared or run as a suite, and to an exit code."""

from __future__ import annotations

import errno
import json
import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from cli.conftest import Ran
from report import bench_sample
from suites import tiny

import nhwc.api
from nhwc.api import BenchReport
from nhwc.cli.measuring import share
from nhwc.errors import ModelError, TargetError
from nhwc.schema import dump_bench, load_bench
from nhwc.suites import jobs as jobs_of
from nhwc.timing import Benchmark, Ratio, Verdict

Run = Callable[..., Ran]


def report_of(benchmark: Benchmark) -> BenchReport:
    return BenchReport(**{each.name: getattr(benchmark, each.name) for each in fields(Benchmark)})


@dataclass
class FakeBench:
    """Answers as ``nhwc.api.bench`` does; ``calls`` keeps what it was asked."""

    report: BenchReport = field(default_factory=lambda: report_of(bench_sample.faster()))
    calls: list[tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)
    during: Callable[[], None] = lambda: None

    def __call__(self, model: torch.nn.Module, *inputs: Any, **options: Any) -> BenchReport:
        self.calls.append((model, inputs, options))
        options["progress"]("rounds", 1, 2)
        self.during()
        return self.report


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> FakeBench:
    fake = FakeBench()
    monkeypatch.setattr(nhwc.api, "bench", fake)
    return fake


def saved(path: Path, benchmark: Benchmark) -> str:
    path.write_text(json.dumps(dump_bench(benchmark)), encoding="utf-8")
    return str(path)


# -- one model -----------------------------------------------------------------------------------------------------


def test_a_named_model_is_measured_with_the_inputs_it_takes(run: Run, api: FakeBench) -> None:
    ran = run("bench", "resnet18")
    assert (ran.code, ran.err) == (0, "")
    said = "channels_last is 1.31 times as fast as contiguous here (95 % interval 1.28 to 1.34)."
    assert " ".join(ran.out.split()).startswith(said)
    ((model, (x,), options),) = api.calls
    assert type(model).__name__ == "ResNet"
    assert x.shape == (8, 3, 224, 224)
    del options["progress"]
    assert options == {
        "kwargs": {},
        "variants": ("contiguous", "channels_last"),
        "baseline": None,
        "mode": "inference",
        "precision": 0.07,
        "budget_s": 60.0,
        "margin": 0.05,
        "seed": 0,
        "target": "resnet18",
    }


def test_every_option_reaches_the_measurement(run: Run, api: FakeBench, tiny: Path) -> None:
    words = "--train --variants contiguous,channels_last+bf16 --baseline channels_last+bf16 --precision 4% --budget 7"
    more = "--margin 0.03 --seed 4 --input 2x3x8x8 --threads 1"
    assert run("bench", "tiny.py:net", *words.split(), *more.split()).code == 0
    ((_, (x,), options),) = api.calls
    assert (tuple(x.shape), torch.get_num_threads()) == ((2, 3, 8, 8), 1)
    asked = {
        name: options[name] for name in ("variants", "baseline", "mode", "precision", "budget_s", "margin", "seed")
    }
    assert asked == {
        "variants": ("contiguous", "channels_last+bf16"),
        "baseline": "channels_last+bf16",
        "mode": "training",
        "precision": 0.04,
        "budget_s": 7.0,
        "margin": 0.03,
        "seed": 4,
    }


def test_all_is_both_formats_with_every_part_that_the_device_has(run: Run, api: FakeBench, tiny: Path) -> None:
    ran = run("bench", "tiny.py:with_one", "--variants", "all")
    ((_, _, options),) = api.calls
    assert options["variants"][:2] == ("contiguous", "channels_last")
    assert {"contiguous+compile", "channels_last+compile", "channels_last+bf16"} <= set(options["variants"])
    left_out = [line for line in ran.err.splitlines() if "left out" in line]
    assert ("channels_last+fp16" in options["variants"]) is (not left_out)


def test_formats_and_files(run: Run, api: FakeBench, tiny: Path, tmp_path: Path) -> None:
    ran = run("bench", "tiny.py:with_one", "--format", "json")
    assert load_bench(ran.out) == bench_sample.faster()
    (tmp_path / "out").mkdir()
    ran = run("bench", "tiny.py:with_one", "-o", "out/a.json", "-o", "a.html")
    assert ran.err == "nhwc: wrote out/a.json\nnhwc: wrote a.html\n"
    assert load_bench(tmp_path / "out" / "a.json") == bench_sample.faster()
    assert (tmp_path / "a.html").read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("", "name a TARGET to measure, such as resnet50, or use --suite or --compare"),
        ("tiny.py:net --variants channels_first,contiguous", "there is no 'channels_first'; "),
        ("tiny.py:net --variants contiguous", "is one variant, and a ratio needs two"),
        ("tiny.py:net --variants contiguous,,channels_last", "has an empty name"),
        ("tiny.py:net --variants all,contiguous", "--variants all stands alone"),
        ("tiny.py:net --variants contiguous,bf16", "variant 'bf16' names no memory format"),
        ("tiny.py:net --baseline channels", "--baseline channels is none of the variants contiguous, channels_last"),
        ("tiny.py:net --variants all --baseline x", "--baseline x is none of the variants contiguous, channels_last,"),
        ("tiny.py:net --precision 0", "--precision 0 can never be reached with --margin 5%; give a larger one"),
        ("tiny.py:net --margin 7%", "--precision 7% can never be reached with --margin 7%"),
        ("tiny.py:net --precision much", "--precision 'much' is no share below 100 %; write 2% or 0.02"),
        ("tiny.py:net --margin 100%", "--margin '100%' is no share below 100 %"),
        ("tiny.py:net --budget 0", "--budget 0 is no number of seconds above 0"),
        ("tiny.py:net --budget nan", "--budget nan is no number of seconds above 0"),
        ("tiny.py:net -o out.svg", "-o out.svg: its ending names no format; end it in .html, .json or .txt"),
        ("tiny.py:net -o tiny.py/out.json", "-o tiny.py/out.json cannot be written: a file stands where the folder"),
        ("tiny.py:net -o .", "-o . is a folder; name a file in it, such as report.html"),
        ("--suite tutorial --folder tiny.py/b", "the folder tiny.py/b cannot be made: tiny.py is a file; name another"),
        ("tiny.py:net --models resnet18", "--models does not go with TARGET, but with --suite; leave it out"),
        ("tiny.py:net --render", "--render does not go with TARGET, but with --suite; leave it out"),
        ("tiny.py:net --suite tutorial", "--suite and TARGET are different things to do; leave one out"),
        ("--suite tutorial --train", "--train does not go with --suite, but with TARGET; leave it out"),
        ("--suite timm", "there is no suite 'timm'; the known ones are tutorial"),
        ("--suite tutorial --models resnet18,", "--models 'resnet18,' has an empty name"),
        ("--suite tutorial --models resnet51", "has no model 'resnet51'; did you mean resnet50?"),
        ("--suite tutorial --modes train", "there is no mode 'train'; the modes are inference and training"),
        (
            "--suite tutorial --folder tiny.py",
            "the folder tiny.py cannot be made: tiny.py is a file; name another folder",
        ),
        ("--suite tutorial --variants contiguous,nchw", "there is no 'nchw'"),
        ("--suite tutorial --render --folder nowhere", "nowhere holds no run of a suite"),
        ("--compare a.json b.json --budget 3", "--budget does not go with --compare, but with TARGET; leave it out"),
        ("--compare a.json b.json", "the file 'a.json' cannot be read"),
        ("--compare tiny.py tiny.py", "the file 'tiny.py' is not JSON"),
        ("--compare a.json", "'--compare' requires 2 arguments"),
        ("--compare a.json b.json -o c.html", "-o c.html: its ending names no format; end it in .json or .txt"),
    ],
)
def test_what_makes_no_sense_is_one_sentence_before_time_is_spent(
    words: str, sentence: str, run: Run, api: FakeBench, tiny: Path
) -> None:
    ran = run("bench", *words.split())
    assert (ran.code, ran.out) == (2, "")
    assert sentence.lower() in ran.err.lower()
    assert ran.err.count("\n") == 1
    assert api.calls == []


def test_a_full_disk_is_one_sentence(
    run: Run, api: FakeBench, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_arguments: object, **_options: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    api.during = lambda: monkeypatch.setattr(Path, "write_text", full)
    ran = run("bench", "tiny.py:with_one", "-o", "a.json")
    assert (ran.code, ran.err) == (2, "nhwc: -o a.json cannot be written: No space left on device\n")


def test_a_model_that_raises_is_one_sentence(run: Run, api: FakeBench, tiny: Path) -> None:
    def raises() -> None:
        raise ModelError("the model raised ValueError: no (as contiguous)")

    api.during = raises
    ran = run("bench", "tiny.py:with_one")
    assert (ran.code, ran.err) == (
        2,
        "nhwc: the model raised ValueError: no (as contiguous); --debug shows the traceback\n",
    )


def test_fail_slower_tells_by_the_exit_code(run: Run, api: FakeBench, tiny: Path) -> None:
    assert run("bench", "tiny.py:with_one", "--fail-slower").code == 0
    api.report = report_of(bench_sample.slower())
    assert run("bench", "tiny.py:with_one").code == 0
    ran = run("bench", "tiny.py:with_one", "--fail-slower")
    assert ran.code == 1
    assert ran.err.startswith("nhwc: --fail-slower: channels_last is slower than contiguous here: 0.89 times as fast")


@pytest.mark.parametrize(
    ("benchmark", "sentence"),
    [
        (
            replace(bench_sample.slower(), unstable=("drift.",)),
            "nothing can be said, the machine was unstable: drift",
        ),
        (
            bench_sample.benchmark(
                bench_sample.timing("channels_last", 9.0, Ratio(0.9, 0.0, math.inf, 2), Verdict.CANNOT_TELL)
            ),
            "nothing can be said of channels_last: too few rounds, give it more --budget",
        ),
    ],
)
def test_fail_slower_says_where_nothing_can_be_said(
    benchmark: Benchmark, sentence: str, run: Run, api: FakeBench, tiny: Path
) -> None:
    api.report = report_of(benchmark)
    ran = run("bench", "tiny.py:with_one", "--fail-slower")
    assert (ran.code, ran.err) == (0, f"nhwc: --fail-slower: {sentence}\n")
    assert run("bench", "tiny.py:with_one").err == ""


def test_a_variant_that_did_not_run_is_one_line_and_exit_code_1(run: Run, api: FakeBench, tiny: Path) -> None:
    api.report = report_of(bench_sample.several())
    ran = run("bench", "tiny.py:with_one")
    assert (ran.code, ran.err) == (1, "nhwc: ours did not run: ours cannot be copied: it holds a lock\n")


def test_shares_are_percent_or_numbers() -> None:
    assert (share("--margin", " 2 %"), share("--margin", "0.02"), share("--margin", "0")) == (0.02, 0.02, 0.0)
    for text in ("-1%", "1", "nan", "inf", "", "%"):
        with pytest.raises(TargetError):
            share("--margin", text)


# -- two files -----------------------------------------------------------------------------------------------------


def test_two_files_are_compared(run: Run, tmp_path: Path) -> None:
    first = saved(tmp_path / "a.json", bench_sample.faster())
    second = saved(tmp_path / "b.json", bench_sample.several())
    ran = run("bench", "--compare", first, second)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("No ratio changed by more than its interval.\n")
    document = json.loads(run("bench", "--compare", first, second, "--format", "json").out)
    assert [row["variant"] for row in document["changes"]] == ["channels_last"]
    assert run("bench", "--compare", first, second, "-o", "c.json").code == 0
    assert json.loads((tmp_path / "c.json").read_text()) == document


def test_what_cannot_be_compared_is_refused_with_every_reason(run: Run, tmp_path: Path) -> None:
    first = saved(tmp_path / "a.json", bench_sample.faster())
    second = saved(tmp_path / "b.json", bench_sample.slower())
    ran = run("bench", "--compare", first, second)
    assert (ran.code, ran.out) == (2, "")
    assert "other model (resnet50, shufflenet_v2_x1_0); other mode (inference, training)" in ran.err
    assert ran.err.count("\n") == 1


def test_a_file_of_another_version_is_refused(run: Run, tmp_path: Path) -> None:
    first = saved(tmp_path / "a.json", bench_sample.faster())
    newer = {**dump_bench(bench_sample.faster()), "version": 99}
    (tmp_path / "b.json").write_text(json.dumps(newer))
    ran = run("bench", "--compare", first, "b.json")
    assert ran.code == 2
    assert "has version 99 and this nhwc reads up to 1; update nhwc" in ran.err


# -- a suite -------------------------------------------------------------------------------------------------------


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every model's process is the stand-in, and the suite is of made-up models; the path of its log."""
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{tiny.STAND_IN}" "$@"\n')
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    monkeypatch.setenv("STAND_IN_LOG", str(tmp_path / "log"))
    monkeypatch.setattr("nhwc.suites.selection._SUITES", {"tiny": tiny.suite("a", "raises", "slower")})
    return tmp_path / "log"


def test_a_suite_measures_each_model_and_writes_a_page(run: Run, stand_in: Path, tmp_path: Path) -> None:
    ran = run("bench", "--suite", "tiny", "--models", "a,slower", "--batch", "2", "--budget", "5", "--threads", "1")
    assert ran.code == 0
    assert "a inference: 1.31 (1.28 to 1.34), faster; the tutorial: 1.26 to 1.76" in ran.err
    assert "In inference, channels_last is faster in 1 of 2 models, slower in 1" in " ".join(ran.out.split())
    first, second, *_ = stand_in.read_text().splitlines()
    asked = "--batch 2 --variants contiguous,channels_last --baseline contiguous --precision 0.07 --margin 0.05"
    rest = "--budget 5 --seed 0 --device cpu --threads 1 --format json"
    assert first == f"-m nhwc.cli.child bench a {asked} {rest}"
    assert second == f"-m nhwc.cli.child bench a --train {asked} {rest}"
    folder = tmp_path / "nhwc-tiny"
    assert {path.name for path in folder.glob("*.*.json")} == {
        f"{model}.{mode}.json" for model in ("a", "slower") for mode in ("inference", "training")
    }
    assert (folder / "index.html").read_text().startswith("<!doctype html>")
    assert (folder / "ratios.svg").read_text().startswith("<svg")
    summary = json.loads((folder / "summary.json").read_text())
    assert [(row["model"], row["mode"], row["standing"]) for row in summary["rows"]][:2] == [
        ("a", "inference", "within"),
        ("slower", "inference", "below"),
    ]


def test_a_suite_with_a_failing_model_runs_the_others_and_exits_with_1(run: Run, stand_in: Path) -> None:
    ran = run("bench", "--suite", "tiny", "--modes", "inference")
    assert ran.code == 1
    assert "raises inference: the model raised ValueError: no" in ran.err
    assert ran.err.endswith("nhwc: 1 of 3 failed\n")
    assert len(stand_in.read_text().splitlines()) == 3
    assert "raises in inference: the model raised ValueError: no." in " ".join(ran.out.split())


def test_a_suite_resumes_and_renders_without_measuring(run: Run, stand_in: Path) -> None:
    words = ("bench", "--suite", "tiny", "--modes", "inference", "--models", "a")
    assert run(*words).code == 0
    assert run(*words).code == 0
    ran = run("bench", "--suite", "tiny", "--render", "--format", "json")
    assert ran.code == 0
    assert (len(json.loads(ran.out)["rows"]), json.loads(ran.out)["missing"]) == (1, 5)
    assert len(stand_in.read_text().splitlines()) == 1


@pytest.mark.parametrize("more", [(), ("--render",)])
def test_a_damaged_file_is_named_and_the_others_are_rendered(
    more: tuple[str, ...], run: Run, stand_in: Path, tmp_path: Path
) -> None:
    words = ("bench", "--suite", "tiny", "--modes", "inference", "--models", "a,slower")
    assert run(*words).code == 0
    (tmp_path / "nhwc-tiny" / "a.inference.json").write_text("{")
    ran = run(*words, *more, "--format", "json")
    assert ran.code == 1
    assert "a.inference.json' is not JSON" in ran.err
    assert "; delete nhwc-tiny/a.inference.json to measure it again\n" in ran.err
    assert [row["verdict"] for row in json.loads(ran.out)["rows"]] == [None, "slower"]


def test_a_suite_with_other_settings_is_refused(run: Run, stand_in: Path) -> None:
    assert run("bench", "--suite", "tiny", "--models", "a").code == 0
    ran = run("bench", "--suite", "tiny", "--models", "a", "--budget", "9")
    assert (ran.code, ran.out) == (2, "")
    assert "nhwc-tiny holds a run with other settings (budget: 60 there, 9 now)" in ran.err


def test_fail_slower_holds_for_a_suite(run: Run, stand_in: Path) -> None:
    words = ("bench", "--suite", "tiny", "--models", "slower", "--modes", "training")
    assert run(*words).code == 0
    ran = run(*words, "--fail-slower")
    assert ran.code == 1
    assert "--fail-slower: channels last is slower for slower in training" in ran.err


def test_a_suite_says_which_variant_of_which_model_did_not_run_and_of_which_nothing_can_be_said(
    run: Run, stand_in: Path, tmp_path: Path
) -> None:
    words = ("bench", "--suite", "tiny", "--models", "a", "--modes", "inference")
    assert run(*words).code == 0
    saved(tmp_path / "nhwc-tiny" / "a.inference.json", replace(bench_sample.several(), unstable=("drift.",)))
    ran = run(*words, "--fail-slower")
    assert ran.code == 1
    assert "nhwc: a in inference: ours did not run: ours cannot be copied: it holds a lock\n" in ran.err
    assert "nhwc: --fail-slower: a in inference: nothing can be said, the machine was unstable: drift\n" in ran.err


def test_an_interrupted_suite_says_where_the_finished_ones_are(
    run: Run, stand_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("nhwc.suites.run", interrupt)
    ran = run("bench", "--suite", "tiny")
    assert ran.code == 130
    assert ran.err == "nhwc: what is finished is in nhwc-tiny; the same command resumes there\nnhwc: interrupted\n"


def test_a_full_disk_ends_a_suite_with_one_sentence(run: Run, stand_in: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("bench", "--suite", "tiny", "--models", "a", "--modes", "inference").code == 0

    def full(_handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    ran = run("bench", "--suite", "tiny")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "nhwc: nhwc-tiny/a.training.json cannot be written: No space left on device\n"
    monkeypatch.undo()


@pytest.mark.slow
def test_a_real_suite_survives_a_model_that_ends_its_process(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nets.py").write_text(
        "import os, torch\nfrom torch import nn\n"
        "class Ends(nn.Module):\n    def forward(self, x):\n        os._exit(9)\n"
        "def good():\n    return nn.Conv2d(3, 4, 3), torch.randn(2, 3, 16, 16)\n"
        "def ends():\n    return Ends(), torch.randn(2, 3, 16, 16)\n"
    )
    made = tiny.suite("ends", "good")
    targets = tuple(replace(model, target=f"nets.py:{model.name}") for model in made.models)
    monkeypatch.setattr("nhwc.suites.selection._SUITES", {"tiny": replace(made, models=targets)})
    ran = run("bench", "--suite", "tiny", "--budget", "1", "--modes", "inference", "--threads", "1")
    assert ran.code == 1
    assert "ends inference: its process ended with exit code 9 and said nothing" in ran.err
    (job,) = jobs_of(made, ["good"], ["inference"])
    benchmark = load_bench(tmp_path / "nhwc-tiny" / f"{job.model.name}.{job.mode}.json")
    assert benchmark.variant("channels_last").samples_ms
