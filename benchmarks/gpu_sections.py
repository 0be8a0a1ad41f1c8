"""The sections of benchmarks/gpu_check.py: each runs its checks within its time and says what it could not reach."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torchvision
from gpu_claims import Answer, Line, timing_line
from torch import nn
from torch.nn import functional

import nhwc
from nhwc.errors import NhwcError
from nhwc.schema import dump_bench
from nhwc.schema.typed import plain
from nhwc.suites.tutorial import ON_VOLTA, VOLTA

#: The document's ResNet-50: 770 images/s contiguous, 1011 in channels last, "over 22 %" in general.
DOCUMENT_BATCH, DOCUMENT_RATIO = 200, 1.22
_PROBE = 32
_STEP_MS = 60.0


@dataclass(frozen=True)
class Plan:
    """What the sections run on. tiny: small inputs and few models, to try the script. amp: "+fp16" on a GPU."""

    device: torch.device
    tiny: bool

    @property
    def amp(self) -> str:
        return "+fp16" if self.device.type == "cuda" else ""

    @property
    def variants(self) -> tuple[str, str]:
        return f"contiguous{self.amp}", f"channels_last{self.amp}"

    @property
    def side(self) -> int:
        return 64 if self.tiny else 224


Section = Callable[[Plan, float], Iterator[Line]]
#: Name → (section, seconds that it may take). A section gets the time at which it must be done.
SECTIONS: dict[str, tuple[Section, float]] = {}


def section(name: str, budget_s: float) -> Callable[[Section], Section]:
    """Register a generator of lines as a section; a name is taken once."""

    def register(run: Section) -> Section:
        if name in SECTIONS:
            raise ValueError(f"the section {name!r} is registered twice")
        SECTIONS[name] = (run, budget_s)
        return run

    return register


class UNetBlock(nn.Module):
    """One level of a 3-D U-Net: down, up, and the skip beside them."""

    def __init__(self, channels: int = 32) -> None:
        super().__init__()
        self.enter = self._convolutions(channels, channels)
        self.down = nn.MaxPool3d(2)
        self.below = self._convolutions(channels, 2 * channels)
        self.up = nn.ConvTranspose3d(2 * channels, channels, 2, 2)
        self.leave = self._convolutions(2 * channels, channels)

    @staticmethod
    def _convolutions(given: int, made: int) -> nn.Sequential:
        return nn.Sequential(nn.Conv3d(given, made, 3, padding=1, bias=False), nn.BatchNorm3d(made), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, C, D, H, W) → the same shape; D, H and W are even."""
        kept = self.enter(x)
        joined: torch.Tensor = self.leave(torch.cat([kept, self.up(self.below(self.down(kept)))], dim=1))
        return joined


def classifier(name: str, device: torch.device) -> nn.Module:
    """A torchvision model with random weights, initialised where it runs."""
    library = torchvision.models.video if name == "r3d_18" else torchvision.models
    with torch.device(device):
        model: nn.Module = getattr(library, name)(weights=None)
    return model


def to_class_zero(output: torch.Tensor) -> torch.Tensor:
    """A loss for classifiers: cross entropy against the first class, in float32."""
    target = torch.zeros(len(output), dtype=torch.long, device=output.device)
    return functional.cross_entropy(output.float(), target)


def mean_square(output: torch.Tensor) -> torch.Tensor:
    """A loss for what answers with a volume."""
    return output.float().square().mean()


def batch_for(ms: float, step_bytes: int, free_bytes: int, probe: int = _PROBE, most: int = 256) -> int:
    """A batch whose step takes about 60 ms and whose memory fits, twice, into a third of what is free.

    ms, step_bytes: of a step at the batch ``probe``. Powers of two, 8 at least.

    >>> batch_for(15.0, 2 * 2**30, 60 * 2**30), batch_for(15.0, 2**30, 3 * 2**30)
    (128, 16)
    """
    by_time = probe * _STEP_MS / max(ms, 1e-3)
    by_memory = probe * (free_bytes / 6) / max(step_bytes, 1)
    fitting = int(max(min(by_time, by_memory, float(most)), 8.0))
    return 1 << (fitting.bit_length() - 1)


def probed_batch(model: nn.Module, plan: Plan) -> int:
    """``batch_for`` from a real training step in channels last."""
    if plan.device.type != "cuda":
        return 2
    x = torch.randn(_PROBE, 3, plan.side, plan.side, device=plan.device).to(memory_format=torch.channels_last)
    free, _ = torch.cuda.mem_get_info(plan.device)
    torch.cuda.reset_peak_memory_stats(plan.device)
    before = torch.cuda.memory_allocated(plan.device)
    ms = 0.0
    for _ in range(3):
        start = time.perf_counter_ns()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = to_class_zero(model(x))
        loss.backward()  # type: ignore[no-untyped-call]
        torch.cuda.synchronize(plan.device)
        ms = (time.perf_counter_ns() - start) / 1e6
        model.zero_grad(set_to_none=True)
    return batch_for(ms, torch.cuda.max_memory_allocated(plan.device) - before, free)


@contextmanager
def kernels_tried() -> Iterator[None]:
    """cudnn.benchmark on, as in the tutorial's training script, and afterwards as it was."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def attempt(section_name: str, name: str, claim: str, check: Callable[[], Line]) -> Line:
    """A line, or why there is none; memory of the GPU is given back either way."""
    try:
        return check()
    except (NhwcError, RuntimeError) as error:
        return Line(section_name, name, claim, " ".join(str(error).split())[:300], Answer.FAILED)
    finally:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def measured(
    where: tuple[str, str, str],
    least: float | None,
    model: nn.Module,
    x: torch.Tensor,
    plan: Plan,
    budget_s: float,
    loss: Callable[[Any], torch.Tensor] = to_class_zero,
) -> Line:
    """The line of a training measurement. where: section, name, claim."""
    options: dict[str, Any] = {"mode": "training", "loss": loss, "precision": 0.02, "margin": 0.01, "target": where[1]}
    with kernels_tried():
        found = nhwc.bench(model, x, variants=plan.variants, budget_s=budget_s, **options)
    return timing_line(*where, least, found, dump_bench(found))


@section("ResNet-50 as in the tutorial", 75.0)
def resnet50(plan: Plan, end_s: float) -> Iterator[Line]:
    """AMP training at batch 200, or at the largest half of it that fits."""
    where = ("ResNet-50 as in the tutorial", "resnet50", "770 to 1011 images/s, over 22 % faster")
    batch = 2 if plan.tiny else DOCUMENT_BATCH
    while True:
        x = torch.randn(batch, 3, plan.side, plan.side, device=plan.device)
        budget = 1.0 if plan.tiny else max(5.0, end_s - time.monotonic() - 30.0)
        model = classifier("resnet50", plan.device)
        line = attempt(*where, lambda: measured(where, DOCUMENT_RATIO, model, x, plan, budget))  # noqa: B023 - at once
        if "out of memory" not in line.measured or batch <= 8:
            yield line
            return
        batch //= 2


@section("The tutorial's list for a Volta GPU", 170.0)
def volta(plan: Plan, end_s: float) -> Iterator[Line]:
    """AMP training of all 28 models, each with a share of what time is left."""
    title = "The tutorial's list for a Volta GPU"
    names = ["squeezenet1_1", "shufflenet_v2_x0_5"] if plan.tiny else sorted(ON_VOLTA)
    claim = f"{100 * (VOLTA.low - 1):.0f} to {100 * (VOLTA.high - 1):.0f} % faster"
    for place, name in enumerate(names):
        left = end_s - time.monotonic()
        if left < 4.0 and not plan.tiny:
            yield Line(title, name, claim, "the section's time was up", Answer.NOT_REACHED)
            continue
        share = left / (len(names) - place)
        budget = 0.5 if plan.tiny else min(6.0, max(1.0, 0.45 * share))  # building and warming up take the rest
        yield attempt(title, name, claim, lambda: _one_of_volta((title, name, claim), plan, budget))  # noqa: B023


def _one_of_volta(where: tuple[str, str, str], plan: Plan, budget_s: float) -> Line:
    model = classifier(where[1], plan.device)
    x = torch.randn(probed_batch(model, plan), 3, plan.side, plan.side, device=plan.device)
    return measured(where, VOLTA.low, model, x, plan, budget_s)


@section("3-D", 45.0)
def volumes(plan: Plan, end_s: float) -> Iterator[Line]:
    """A video model and a block of a 3-D U-Net, in AMP training; the tutorial claims nothing for volumes."""
    clip = (1, 3, 4, 32, 32) if plan.tiny else (8, 3, 16, 112, 112)
    volume = (1, 4, 8, 8, 8) if plan.tiny else (2, 32, 64, 64, 64)
    cases: tuple[tuple[str, Callable[[], nn.Module], tuple[int, ...], Callable[[Any], torch.Tensor]], ...] = (
        ("r3d_18", lambda: classifier("r3d_18", plan.device), clip, to_class_zero),
        ("a block of a 3-D U-Net", lambda: UNetBlock(volume[1]).to(plan.device), volume, mean_square),
    )
    for name, build, shape, loss in cases:
        left = end_s - time.monotonic()
        budget = 0.5 if plan.tiny else max(1.0, min(10.0, left / 3.0))
        x = torch.randn(shape, device=plan.device)
        where = ("3-D", name, "")
        yield attempt(*where, lambda: measured(where, None, build(), x, plan, budget, loss))  # noqa: B023


@section("Correctness", 95.0)
def correctness(plan: Plan, end_s: float) -> Iterator[Line]:
    """Conversion there and back, the kernels that an audit names, and every model verified in training."""
    yield attempt("Correctness", "conversion there and back", "", lambda: _round_trip(plan))
    if plan.device.type == "cuda":
        yield attempt("Correctness", "cuDNN's layout kernels", "", lambda: _layout_kernels(plan))
    names = ["squeezenet1_1"] if plan.tiny else ["resnet50", "r3d_18", *sorted(ON_VOLTA - {"resnet50"})]
    for name in ["a block of a 3-D U-Net", *names]:
        if time.monotonic() > end_s - 8.0 and not plan.tiny:
            yield Line("Correctness", name, "as near to float64", "the section's time was up", Answer.NOT_REACHED)
            continue
        yield attempt("Correctness", name, "as near to float64", lambda: _verified(name, plan))  # noqa: B023


def _verified(name: str, plan: Plan) -> Line:
    if name == "a block of a 3-D U-Net":
        model: nn.Module = UNetBlock(4).to(plan.device)
        x = torch.randn(2, 4, 8, 8, 8, device=plan.device)
    else:
        model = classifier(name, plan.device)
        shape = (2, 3, 4, 64, 64) if name == "r3d_18" else (2, 3, plan.side, plan.side)
        x = torch.randn(shape, device=plan.device)
    found = nhwc.verify(model, x, train=True, variants=("channels_last",), target=name)
    (proof,) = found.variants
    answer = Answer.HOLDS if found.passed else Answer.FAILS
    return Line("Correctness", name, "as near to float64", proof.reason or str(proof.outcome), answer, raw=plain(found))


def _round_trip(plan: Plan) -> Line:
    model = classifier("squeezenet1_1" if plan.tiny else "resnet50", plan.device)
    before = {name: (value.clone(), value.stride()) for name, value in model.state_dict().items()}
    nhwc.restore(nhwc.convert(model))
    after = model.state_dict()
    changed = [
        name
        for name, (value, strides) in before.items()
        if after[name].stride() != strides or not after[name].equal(value)
    ]
    told = f"{changed[0]} changed" if changed else f"{len(before)} tensors have their values and strides again"
    return Line("Correctness", "conversion there and back", "", told, Answer.FAILS if changed else Answer.HOLDS)


def _layout_kernels(plan: Plan) -> Line:
    """Under AMP on tensor cores cuDNN rewrites contiguous operands, and an audit has to see that."""
    model = classifier("resnet50", plan.device)
    x = torch.randn(8, 3, plan.side, plan.side, device=plan.device)
    counts = []
    for convert in (False, True):
        report = nhwc.audit(model, x, train=True, convert=convert, amp=torch.float16, repeats=0)
        counts.append(sum(len(call.reorders) for call in report.trace.calls))
    told = f"{counts[0]} in a contiguous step, {counts[1]} in channels last"
    answer = Answer.HOLDS if counts[1] < counts[0] else Answer.FAILS
    return Line(
        "Correctness", "cuDNN's layout kernels", "seen where there are any, fewer in channels last", told, answer
    )
