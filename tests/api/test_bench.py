"""bench as a whole: what is asked, what runs, what is told, and that everything is left as it was."""

import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import nhwc
from nhwc.api import benching
from nhwc.measure.clock import Clock
from nhwc.timing import Load, Stop, Verdict


@pytest.fixture
def quiet_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else runs, so that no test depends on what the machine does meanwhile."""

    class Meter:
        def read(self, threads: int) -> Load:
            return Load(cores=2.0, threads=threads)

    monkeypatch.setattr(benching, "LoadMeter", Meter)


@pytest.fixture
def images() -> torch.Tensor:
    return torch.randn(2, 3, 16, 16)


def net() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())


class Slow(nn.Module):
    """Tells the made-up clock how long it takes."""

    took_ms = 0.0

    def __init__(self, contiguous_ms: float, channels_last_ms: float) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.ms = (contiguous_ms, channels_last_ms)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        Slow.took_ms += self.ms[0] if x.is_contiguous() else self.ms[1]
        return self.conv(x)


@pytest.fixture
def told_times(monkeypatch: pytest.MonkeyPatch, quiet_machine: None) -> None:
    """The clock answers with what Slow models say they took, with a little noise."""
    numbers = random.Random(0)

    class Telling(Clock):
        def __init__(self) -> None:
            super().__init__("cpu")

        def time_ms(self, call: Callable[[], object]) -> float:
            Slow.took_ms = 0.0
            call()
            return Slow.took_ms * numbers.lognormvariate(0.0, 0.01)

    monkeypatch.setattr(benching, "clock_for", lambda _device: Telling())


@pytest.mark.usefixtures("told_times")
@pytest.mark.parametrize(
    ("channels_last_ms", "verdict"),
    [(150.0, Verdict.FASTER), (300.0, Verdict.SLOWER), (200.0, Verdict.CANNOT_TELL), (201.0, Verdict.CANNOT_TELL)],
)
def test_the_verdict_is_that_of_the_ratio(channels_last_ms: float, verdict: Verdict, images: torch.Tensor) -> None:
    report = nhwc.bench(Slow(200.0, channels_last_ms), images)
    timing = report.variant("channels_last")
    assert timing.verdict is verdict
    assert timing.ratio is not None
    assert timing.ratio.low <= 200.0 / channels_last_ms <= timing.ratio.high
    assert report.stopped is Stop.NARROW
    assert report.variant("contiguous").ratio is None
    assert report.throughput(report.variant("contiguous")) == pytest.approx(10.0, rel=0.02)
    assert report.throughput("contiguous") == report.throughput(report.variant("contiguous"))


@pytest.mark.usefixtures("told_times")
def test_an_unstable_machine_is_told_instead_of_a_verdict(
    images: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Meter:
        def read(self, threads: int) -> Load:
            return Load(cores=2.0, threads=2, others=0.8)

    monkeypatch.setattr(benching, "LoadMeter", Meter)
    report = nhwc.bench(Slow(200.0, 100.0), images)
    assert report.variant("channels_last").verdict is Verdict.UNSTABLE
    assert report.unstable[0].startswith("other processes kept 0.8 of 2 cores busy")
    assert report.load == Load(cores=2.0, threads=2, others=0.8)
    assert "faster" not in repr(report)


@pytest.mark.usefixtures("told_times")
def test_too_few_rounds_are_told_with_what_to_do(images: torch.Tensor) -> None:
    class Waits(Slow):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            import time

            time.sleep(0.05)
            return super().forward(x)

    report = nhwc.bench(Waits(200.0, 100.0), images, budget_s=0.2)
    assert report.stopped is Stop.BUDGET
    assert report.variant("channels_last").verdict is Verdict.CANNOT_TELL
    assert "an interval needs 6: give it more time" in report.notes[0]


@pytest.mark.usefixtures("quiet_machine")
@pytest.mark.parametrize("mode", ["inference", "training"])
def test_everything_is_left_as_it_was(mode: str, images: torch.Tensor) -> None:
    model = nn.Sequential(net(), nn.Dropout()).train()
    before = {name: (tensor.data_ptr(), tensor._version) for name, tensor in model.state_dict().items()}
    states = torch.get_rng_state().tolist(), random.getstate()
    nhwc.bench(model, images, mode=mode, budget_s=0.1)
    assert {name: (tensor.data_ptr(), tensor._version) for name, tensor in model.state_dict().items()} == before
    assert (torch.get_rng_state().tolist(), random.getstate()) == states
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    assert images.is_contiguous()
    assert images._version == 0


@pytest.mark.usefixtures("quiet_machine")
def test_a_variant_that_cannot_run_here_is_told_and_the_others_run(
    images: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nhwc.variants.precision.instruction_flags", lambda: frozenset())
    report = nhwc.bench(net(), images, variants=["contiguous", "channels_last+fp16", "channels_last"], budget_s=0.1)
    assert report.variant("channels_last+fp16").failure == (
        "fp16 cannot be had here: this processor has no float16 arithmetic"
    )
    assert report.variant("channels_last").samples_ms


class View(nn.Module):
    """A view that only contiguous memory allows."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x).view(x.shape[0], -1)


@pytest.mark.usefixtures("quiet_machine")
def test_a_variant_that_raises_is_told_and_a_baseline_that_raises_is_an_error(images: torch.Tensor) -> None:
    report = nhwc.bench(View(), images, budget_s=0.1)
    assert report.variant("channels_last").failure.startswith("it raised RuntimeError: view size is not compatible")
    assert report.variant("channels_last").ratio is None
    assert report.stopped is Stop.ALONE
    with pytest.raises(nhwc.ModelError, match=r"raised RuntimeError: view size .* \(as channels_last\)"):
        nhwc.bench(View(), images, baseline="channels_last", budget_s=0.1)


@pytest.mark.usefixtures("quiet_machine")
def test_the_same_variant_twice_and_modules_of_ones_own(images: torch.Tensor) -> None:
    twice = nhwc.bench(net(), images, variants=["contiguous", "contiguous"], budget_s=0.1)
    assert [each.name for each in twice.variants] == ["contiguous", "contiguous (2)"]
    own = nhwc.bench(net(), images, variants={"mine": net(), "plain": "contiguous"}, budget_s=0.1)
    assert [(each.name, each.spec) for each in own.variants] == [("mine", "module"), ("plain", "contiguous")]
    assert own.baseline == "mine"


@pytest.mark.usefixtures("quiet_machine")
def test_what_was_measured_is_kept_whole_and_loads_again(images: torch.Tensor, tmp_path: Path) -> None:
    report = nhwc.bench(net(), images, budget_s=0.2, seed=5, target="a net")
    assert (report.target, report.seed, report.batch) == ("a net", 5, 2)
    assert report.inputs == (((2, 3, 16, 16), "float32"),)
    assert report.conditions.threads == torch.get_num_threads()
    assert dict(report.conditions.versions)["torch"] == torch.__version__
    assert all((each.peak_bytes or 0) > 2 * 8 * 14 * 14 * 4 for each in report.variants)
    assert len({len(each.samples_ms) for each in report.variants}) == 1
    again = nhwc.load_bench(report.save(tmp_path / "report.json"))
    assert again == report
    assert isinstance(again, nhwc.BenchReport)
    assert report.save(tmp_path / "report.html").read_text().startswith("<!doctype html>")
    assert "a net" in str(report)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"variants": ["contiguous", "nhwc"]}, "there is no 'nhwc'"),
        ({"variants": ["contiguous"]}, "a ratio needs two variants"),
        ({"variants": "contiguous"}, "a ratio needs two variants"),
        ({"variants": []}, "a ratio needs two variants"),
        ({"baseline": "channels-last"}, "none of the variants contiguous, channels_last"),
        ({"loss": torch.sum}, "loss and optimizer are for training"),
        ({"mode": "training", "loss": 3}, "loss takes a function from the model's output to a scalar, got int"),
        ({"mode": "training", "optimizer": torch.optim.SGD([torch.zeros(1)], 0.1)}, "a function from parameters"),
        ({"mode": "train"}, "use 'inference' or 'training'"),
        ({"precision": 0.0}, "precision=0.0 must be a number above 0"),
        ({"budget_s": float("nan")}, "budget_s=nan must be"),
        ({"margin": 0.07}, "margin=0.07 must be a share from 0 up to the precision, 0.07"),
    ],
)
def test_what_cannot_be_measured_is_refused_at_once(options: dict[str, Any], words: str, images: torch.Tensor) -> None:
    with pytest.raises(nhwc.NhwcError, match=words):
        nhwc.bench(net(), images, **options)


def test_a_name_is_for_the_command_line() -> None:
    with pytest.raises(nhwc.ModelError, match="names are for the command line"):
        nhwc.bench("resnet18")  # type: ignore[arg-type]


@pytest.mark.usefixtures("quiet_machine")
def test_an_interruption_passes_and_leaves_everything_as_it_was(images: torch.Tensor) -> None:
    class Interrupted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if next(calls) == 5:
                raise KeyboardInterrupt
            return self.conv(x)

    calls, model = itertools.count(), Interrupted()
    state = torch.get_rng_state().tolist()
    with pytest.raises(KeyboardInterrupt):
        nhwc.bench(model, images)
    assert torch.get_rng_state().tolist() == state


@pytest.mark.usefixtures("quiet_machine")
def test_progress_tells_what_runs_and_how_long_it_may_take(images: torch.Tensor) -> None:
    told: list[tuple[str, int, int]] = []
    nhwc.bench(net(), images, budget_s=1.0, progress=lambda *words: told.append(words))
    stages = [stage for stage, _, _ in told]
    assert stages[:5] == [
        "preparing contiguous",
        "preparing channels_last",
        "warming up contiguous",
        "warming up channels_last",
        "round 1",
    ]
    assert all(0 <= done <= total for _, done, total in told)


def test_kernels_are_on_for_the_steps_of_their_own_variant_alone(images: torch.Tensor) -> None:
    seen: dict[bool, set[int]] = {True: set(), False: set()}

    class Watching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = nn.functional.instance_norm(self.conv(x))
            if not x.is_contiguous():
                seen[y.stride(1) == 1].add(len(nhwc.kernels.active()))
            return y

    report = nhwc.bench(Watching(), images, variants=["channels_last", "channels_last+kernels"], budget_s=0.5)
    assert [each.failure for each in report.variants] == ["", ""]
    assert [each.kernels for each in report.variants] == [(), tuple(each.name for each in nhwc.kernels.kernels())]
    assert nhwc.load_bench(report.render("json")) == report
    assert seen == {False: {0}, True: {len(nhwc.kernels.kernels())}}
    assert nhwc.kernels.active() == ()
