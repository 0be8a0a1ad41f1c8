"""The GPU check as far as it goes without a GPU: its plan, its refusals, its summary, and a tiny version on the CPU."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gpu_check
import gpu_kernels
import gpu_sections
import pytest
import torch
from gpu_claims import Answer, Line, judge, render, timing_line
from gpu_sections import SECTIONS, Plan, attempt, batch_for
from meta.project import ROOT

from nhwc.errors import ModelError, TargetError
from nhwc.timing import Benchmark, Conditions, Ratio, Stop, VariantTiming

CPU = torch.device("cpu")
NO_GPU = not torch.cuda.is_available()


def benchmark(ratio: Ratio | None, failure: str = "", unstable: tuple[str, ...] = ()) -> Benchmark:
    conditions = Conditions("cuda", "x86", 2.0, 2, "Linux", "CUDA caching allocator", (("torch", "2.14"),))
    base = VariantTiming("contiguous+fp16", "contiguous+fp16", (260.0,) * 8)
    other = VariantTiming("channels_last+fp16", "channels_last+fp16", (200.0,) * 8, ratio=ratio, failure=failure)
    return Benchmark(
        "resnet50",
        "training",
        "contiguous+fp16",
        (base, other),
        conditions,
        (((200, 3, 224, 224), "float32"),),
        200,
        0,
        0.01,
        0.01,
        0.95,
        40.0,
        Stop.NARROW,
        50.0,
        "2026-01-01T00:00:00+00:00",
        unstable,
    )


@pytest.mark.parametrize(
    ("low", "high", "least", "answer"),
    [
        (1.29, 1.33, 1.22, Answer.HOLDS),
        (1.22, 1.30, 1.22, Answer.HOLDS),
        (1.10, 1.20, 1.22, Answer.FAILS),
        (1.20, 1.25, 1.22, Answer.CANNOT_TELL),
        (0.0, float("inf"), 1.22, Answer.CANNOT_TELL),
        (1.5, 1.6, None, Answer.NO_CLAIM),
    ],
)
def test_a_claim_is_held_against_the_whole_interval(
    low: float, high: float, least: float | None, answer: Answer
) -> None:
    assert judge(Ratio((low + high) / 2, low, high, 8), least) is answer


def test_a_line_says_ratio_interval_batch_and_throughput() -> None:
    line = timing_line("a", "resnet50", "770 to 1011", 1.22, benchmark(Ratio(1.3, 1.28, 1.32, 8)), {})
    assert line.answer is Answer.HOLDS
    assert line.measured == "1.300 times as fast (1.280 to 1.320) at batch 200, 769 to 1000 a second"
    assert line.images_per_s == (pytest.approx(769.23, abs=0.01), 1000.0)


def test_an_unstable_machine_and_a_failure_answer_nothing() -> None:
    shaky = timing_line("a", "x", "", 1.22, benchmark(Ratio(1.3, 1.28, 1.32, 8), unstable=("the clock drifted",)), {})
    assert (shaky.answer, "the clock drifted" in shaky.measured) == (Answer.CANNOT_TELL, True)
    broken = timing_line("a", "x", "", 1.22, benchmark(None, failure="out of memory"), {})
    assert (broken.answer, broken.measured) == (Answer.FAILED, "out of memory")


def test_the_summary_has_every_line_under_its_section_and_counts_them() -> None:
    lines = [
        Line("One", "resnet50", "over 22 %", "1.3 times", Answer.HOLDS),
        Line("Two", "vgg11", "8 %", "1.0 times", Answer.FAILS),
        Line("One", "again", "", "1.1 times", Answer.NO_CLAIM),
    ]
    assert render(lines).splitlines() == [
        "One",
        "  holds          resnet50: 1.3 times (claim: over 22 %)",
        "  no claim       again: 1.1 times",
        "",
        "Two",
        "  does not hold  vgg11: 1.0 times (claim: 8 %)",
        "",
        "In all: 1 holds, 1 does not hold, 1 no claim.",
    ]
    assert render([]).endswith("nothing was run.")


def test_the_plan_fits_into_eight_minutes_by_its_own_budgets() -> None:
    assert sum(budget for _, budget in SECTIONS.values()) + gpu_check.START_S <= gpu_check.WHOLE_S == 480.0


@pytest.mark.parametrize("name", ["The tutorial's list for a Volta GPU", "Correctness"])
def test_what_the_time_does_not_reach_is_told_by_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_sections, "attempt", lambda *where: Line(*where[:3], "", Answer.HOLDS))
    run, _ = SECTIONS[name]
    lines = list(run(Plan(CPU, tiny=False), time.monotonic() - 1.0))
    missed = [line.name for line in lines if line.answer is Answer.NOT_REACHED]
    assert len(missed) >= 28
    assert "vgg19_bn" in missed


def test_the_volta_list_shares_what_time_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    budgets: list[float] = []
    monkeypatch.setattr(gpu_sections, "_one_of_volta", lambda where, plan, budget: budgets.append(budget))
    run, budget_s = SECTIONS["The tutorial's list for a Volta GPU"]
    assert len(list(run(Plan(CPU, tiny=False), time.monotonic() + budget_s))) == len(budgets) == 28
    assert budgets[0] == pytest.approx(0.45 * budget_s / 28, rel=0.05)
    assert max(budgets) == 6.0
    assert sum(budgets) < budget_s


def test_the_tutorials_batch_is_halved_until_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[int] = []

    def measured(where: Any, least: Any, model: Any, x: torch.Tensor, plan: Any, budget_s: float) -> Line:
        batches.append(len(x))
        if len(x) > 50:
            raise RuntimeError("CUDA out of memory. Tried to allocate 9 GiB")
        return Line(*where, "fine", Answer.HOLDS)

    monkeypatch.setattr(gpu_sections, "measured", measured)
    monkeypatch.setattr(gpu_sections, "classifier", lambda name, device: torch.nn.Identity())
    monkeypatch.setattr(Plan, "side", 2)
    run, _ = SECTIONS["ResNet-50 as in the tutorial"]
    (line,) = run(Plan(CPU, tiny=False), time.monotonic() + 60.0)
    assert (batches, line.measured) == ([200, 100, 50], "fine")


@pytest.mark.parametrize(
    ("ms", "step_gib", "free_gib", "batch"),
    [
        (30.0, 1.0, 100.0, 64),
        (2.0, 0.1, 100.0, 256),
        (15.0, 4.0, 12.0, 16),
        (900.0, 1.0, 100.0, 8),
        (60.0, 40.0, 1.0, 8),
    ],
)
def test_a_batch_fits_time_and_memory(ms: float, step_gib: float, free_gib: float, batch: int) -> None:
    assert batch_for(ms, int(step_gib * 2**30), int(free_gib * 2**30)) == batch


@pytest.mark.parametrize("error", [ModelError("the model raised"), RuntimeError("CUDA out of\nmemory")])
def test_a_check_that_fails_is_a_line_and_no_end(error: Exception) -> None:
    def fails() -> Line:
        raise error

    line = attempt("a", "b", "c", fails)
    assert (line.answer, line.measured) == (Answer.FAILED, " ".join(str(error).split()))


@pytest.mark.skipif(not NO_GPU, reason="there is a GPU, which is not refused")
@pytest.mark.parametrize(("name", "told"), [("cuda", "torch sees no GPU"), ("cuda:3", "torch sees no GPU cuda:3")])
def test_without_a_gpu_it_says_so(name: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_check.main(["--device", name]) == 2
    err = capsys.readouterr().err
    assert told in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(("name", "smoke"), [("cpu", False), ("mps", True), ("gpu", False)])
def test_other_devices_are_refused(name: str, smoke: bool) -> None:
    with pytest.raises(TargetError):
        gpu_check.device_of(name, smoke)


def test_lines_are_written_as_they_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(_plan: Plan, _end_s: float) -> Iterator[Line]:
        yield Line("s", "first", "", "1.2 times", Answer.HOLDS)
        raise KeyboardInterrupt

    monkeypatch.setitem(SECTIONS, "3-D", (killed, 1.0))
    file = tmp_path / "gpu.json"
    arguments = ["--device", "cpu", "--smoke", "--sections", "3-D", "-o", str(file)]
    assert gpu_check.main(arguments) == 130
    document = json.loads(file.read_text())
    assert (document["format"], document["version"], document["smoke"]) == ("nhwc-gpu-check", 1, True)
    assert [(line["name"], line["answer"]) for line in document["lines"]] == [("first", "holds")]


@pytest.mark.usefixtures("few_threads")
def test_a_tiny_version_of_two_sections_runs_on_the_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "gpu.json"
    arguments = ["--device", "cpu", "--smoke", "--sections", "3-D", "Correctness", "-o", str(file)]
    before = torch.backends.cudnn.benchmark
    assert gpu_check.main(arguments) == 0
    assert torch.backends.cudnn.benchmark == before
    lines = json.loads(file.read_text())["lines"]
    assert [line["name"] for line in lines if line["section"] == "3-D"] == ["r3d_18", "a block of a 3-D U-Net"]
    assert all(line["raw"]["variants"][1]["samples_ms"] for line in lines if line["section"] == "3-D")
    assert {line["answer"] for line in lines if line["section"] == "Correctness"} == {"holds"}
    assert "no claim" in capsys.readouterr().out.splitlines()[-1]


@pytest.mark.usefixtures("few_threads")
def test_the_kernels_section_finds_every_case_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_kernels, "_ROUNDS", 1)
    monkeypatch.setattr(gpu_kernels, "_CALLS", 1)
    run, _ = SECTIONS["Kernels"]
    lines = list(run(Plan(CPU, tiny=True), time.monotonic() + 60.0))
    assert len(lines) == len(gpu_kernels.CASES) + 1
    assert {line.answer for line in lines} == {Answer.NO_CLAIM}, [line.measured for line in lines]


def made_wrong(call: Any) -> gpu_kernels.Case:
    return gpu_kernels.Case("made wrong", ("roll",), call, ((2, 3, 4, 5),), ((2, 3, 4, 5),))


def test_a_kernel_that_loses_the_format_or_is_wrong_is_told() -> None:
    x, grad = torch.randn(2, 3, 4, 5), torch.ones(2, 3, 4, 5)
    lost = made_wrong(lambda each: each.contiguous() * 2.0)
    assert gpu_kernels._fault(lost, [x], grad) == "result 0 has strides (60, 20, 5, 1)"
    wrong = made_wrong(lambda each: each * (2.0 if each.is_contiguous() else 2.01))
    assert gpu_kernels._fault(wrong, [x], grad).startswith("result 0 is off by")
    assert gpu_kernels._fault(made_wrong(lambda each: each * 2.0), [x], grad) == ""


@pytest.mark.slow
def test_the_whole_script_runs_tiny_as_a_process(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "gpu_check.py"), "--device", "cpu", "--smoke"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in SECTIONS)
