"""The verb bench: variants of a model set against each other in turn, and the report of it."""

from __future__ import annotations

import datetime
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from nhwc.api.showing import Showing
from nhwc.errors import ModelError, NhwcError, RegistryError
from nhwc.machine import LoadMeter, conditions
from nhwc.measure.clock import clock_for
from nhwc.measure.placement import Placement
from nhwc.measure.runner import Contender, Limits, run_rounds
from nhwc.measure.stability import instabilities
from nhwc.measure.stats import FEWEST_PAIRS, judge, paired_ratio, widened
from nhwc.progress import Progress, quiet
from nhwc.recorder import device_of, tensors_in
from nhwc.recorder.memory import peak_bytes
from nhwc.recorder.state import StepGuard
from nhwc.report.bench.to_html import to_html_fragment
from nhwc.schema import load_bench as read_bench
from nhwc.timing import MODES, Benchmark, Stop, VariantTiming, Verdict
from nhwc.variants import Setup, inference_step, parse, prepare, training_step
from nhwc.variants.steps import Loss, MakeOptimizer

Variants = Sequence[str] | Mapping[str, str | nn.Module]

_USERS_OWN = "module"


@dataclass(frozen=True, repr=False)
class BenchReport(Showing, Benchmark):
    """A measurement that shows itself: in a terminal, in a notebook, and in a file."""

    _kind = "bench"

    def _repr_html_(self) -> str:
        return to_html_fragment(self)

    def __repr__(self) -> str:
        told = ", ".join(f"{each.name}: {each.verdict}" for each in self.variants if each.verdict is not None)
        return f"<{type(self).__name__} of {self.target}: {told}>"


@dataclass(frozen=True)
class _Wanted:
    """One variant that was asked for: its name, its spec, and the module it runs where that is the user's own."""

    name: str
    spec: str
    module: nn.Module | None = None


def bench(
    model: nn.Module,
    *inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    variants: Variants = ("contiguous", "channels_last"),
    baseline: str | None = None,
    mode: str = "inference",
    loss: Loss | None = None,
    optimizer: MakeOptimizer | None = None,
    precision: float = 0.07,
    budget_s: float = 60.0,
    margin: float = 0.05,
    seed: int = 0,
    target: str = "",
    progress: Progress | None = None,
) -> BenchReport:
    """Measure how many times faster each variant of a model is than a baseline, with a confidence interval.

    Every variant runs a copy of the model; a round runs each once, in random order, so that what the machine does
    meanwhile hits all alike. The model, its inputs, random state and modes are afterwards as before.

    variants: specs of parts joined by "+" ("channels_last", "channels_last+bf16", "contiguous+compile": see
        docs/bench.md), or a mapping of names to specs and to modules of your own, which run on the inputs as given.
    baseline: the name of the variant that the others are set against; "contiguous" where it is there, else the first.
    mode: "inference" (evaluation mode, no gradients) or "training" (fresh gradients, forward, backward, optimizer).
    loss: for training, model output → scalar; without one backward starts from a gradient of ones.
    optimizer: for training, list of parameters → optimizer; without one SGD with momentum at a learning rate of 0.
    precision: stop when the half width of every interval is at most this share of its ratio; above the margin.
    budget_s: seconds of rounds at most; building, compiling and warming up the variants come on top.
    margin: a share that every interval is widened by on either side, for what differs from process to process.
    seed: of the order and of dropout. progress: called with (stage, seconds gone, seconds at most).

    Raises ModelError where the baseline raises, RegistryError for unknown variants; a variant that cannot run here, or
    that raises, is in the result with its reason.

    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())
    >>> report = bench(net, torch.randn(1, 3, 16, 16), budget_s=0.5)
    >>> report.baseline, [variant.name for variant in report.variants]
    ('contiguous', ['contiguous', 'channels_last'])
    """
    _check(model, mode, precision, budget_s, margin)
    _check_training(mode, loss, optimizer)
    wanted = _wanted(variants)
    base = _baseline(wanted, baseline)
    device = device_of(model, inputs)
    tell = progress or quiet
    began, started = time.monotonic(), datetime.datetime.now(datetime.UTC).astimezone().isoformat(timespec="seconds")
    limits = Limits(precision=(1.0 + precision) / (1.0 + margin) - 1.0, budget_s=budget_s)
    with StepGuard():
        torch.manual_seed(seed)
        contenders: list[Contender] = []
        switched_on: dict[str, tuple[str, ...]] = {}
        refused: dict[str, str] = {}
        for place, each in enumerate(wanted):
            tell(f"preparing {each.name}", place, len(wanted))
            try:
                setup = _setup(each, model, inputs, kwargs or {}, device)
                step = training_step(setup, loss, optimizer) if mode == "training" else inference_step(setup)
            except NhwcError as error:
                if each.name == base:
                    raise
                refused[each.name] = str(error)
                continue
            contenders.append(Contender(each.name, step, context=setup.surroundings))
            switched_on[each.name] = setup.kernels_on()
        meter = LoadMeter()
        stopped = _run(contenders, base, device, limits, seed, tell, budget_s)
        load = meter.read(torch.get_num_threads()) if device.type == "cpu" else None
        where = conditions(device)
        peaks = {each.name: _peak_bytes(each, device) for each in contenders if each.failure is None}
    samples = {each.name: each.samples_ms for each in contenders if each.samples_ms}
    unstable = instabilities(samples, base, load)
    return BenchReport(
        target=target or type(model).__name__,
        mode=mode,
        baseline=base,
        variants=tuple(
            replace(
                _timing(each, contenders, base, refused, peaks, limits, margin, unstable=bool(unstable)),
                kernels=switched_on.get(each.name),
            )
            for each in wanted
        ),
        conditions=where,
        inputs=tuple(
            (tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
            for tensor in tensors_in([inputs, dict(kwargs or {})])
        ),
        batch=_batch(inputs, kwargs or {}),
        seed=seed,
        precision=precision,
        margin=margin,
        confidence=limits.confidence,
        budget_s=budget_s,
        stopped=stopped,
        seconds=time.monotonic() - began,
        started=started,
        unstable=unstable,
        notes=_notes(samples, base),
        load=load,
    )


def load_bench(source: Mapping[str, Any] | str | Path) -> BenchReport:
    """The measurement saved as JSON in a file (a path), a text or a dictionary; equal to the one that was saved.

    Raises SchemaError where it is not ours, is damaged, or comes from a newer nhwc.
    """
    loaded = read_bench(source)
    return BenchReport(**{field.name: getattr(loaded, field.name) for field in fields(Benchmark)})


def _check(model: object, mode: str, precision: float, budget_s: float, margin: float) -> None:
    if not isinstance(model, nn.Module):
        raise ModelError(f"bench takes an nn.Module, got {type(model).__name__}; names are for the command line")
    if mode not in MODES:
        raise ModelError(f"mode={mode!r} is not known; use {' or '.join(map(repr, MODES))}")
    for name, value in (("precision", precision), ("budget_s", budget_s)):
        if not (value > 0.0 and math.isfinite(value)):
            raise ModelError(f"{name}={value!r} must be a number above 0")
    if not 0.0 <= margin < precision:
        raise ModelError(f"margin={margin!r} must be a share from 0 up to the precision, {precision!r}")


def _check_training(mode: str, loss: object, optimizer: object) -> None:
    if mode != "training" and (loss is not None or optimizer is not None):
        raise ModelError("loss and optimizer are for training: pass mode='training' too, or leave them out")
    if loss is not None and not callable(loss):
        raise ModelError(f"loss takes a function from the model's output to a scalar, got {type(loss).__name__}")
    if isinstance(optimizer, torch.optim.Optimizer) or (optimizer is not None and not callable(optimizer)):
        raise ModelError(
            f"optimizer takes a function from parameters to an optimizer, got {type(optimizer).__name__}: every "
            "variant has parameters of its own; write lambda parameters: torch.optim.AdamW(parameters)"
        )


def _wanted(variants: Variants) -> list[_Wanted]:
    """What to measure, every spec known. A spec that is there twice gets a number, to set a variant against itself."""
    if isinstance(variants, str):
        variants = [variants]
    found: list[_Wanted] = []
    if isinstance(variants, Mapping):
        for name, value in variants.items():
            own = value if isinstance(value, nn.Module) else None
            found.append(_Wanted(str(name), _USERS_OWN if own is not None else str(value), own))
    else:
        for spec in variants:
            twin = sum(each.spec == spec for each in found)
            found.append(_Wanted(f"{spec} ({twin + 1})" if twin else spec, spec))
    for each in found:
        if each.module is None:
            parse(each.spec)
    if len(found) < 2:
        raise RegistryError(f"a ratio needs two variants, got {[each.name for each in found]}; name another")
    return found


def _baseline(wanted: Sequence[_Wanted], asked: str | None) -> str:
    names = [each.name for each in wanted]
    if asked is None:
        return "contiguous" if "contiguous" in names else names[0]
    if asked not in names:
        raise RegistryError(f"the baseline {asked!r} is none of the variants {', '.join(names)}; name one of them")
    return asked


def _setup(
    wanted: _Wanted, model: nn.Module, inputs: Sequence[Any], kwargs: Mapping[str, Any], device: torch.device
) -> Setup:
    if wanted.module is not None:
        return prepare("as_is", wanted.module, inputs, kwargs, device)
    return prepare(wanted.spec, model, inputs, kwargs, device)


def _run(
    contenders: list[Contender],
    base: str,
    device: torch.device,
    limits: Limits,
    seed: int,
    tell: Progress,
    budget_s: float,
) -> Stop:
    try:
        return run_rounds(
            contenders,
            base,
            clock_for(device),
            limits,
            seed,
            lambda stage, seconds: tell(stage, min(round(seconds), round(budget_s)), round(budget_s)),
            before_round=Placement(seed).change if device.type == "cpu" else None,
        )
    except NhwcError:
        raise
    except Exception as error:
        raise ModelError(f"the model raised {type(error).__name__}: {_one_line(error)} (as {base})") from error


def _peak_bytes(contender: Contender, device: torch.device) -> int | None:
    with contender.context():
        return peak_bytes(contender.step, device)


def _timing(
    wanted: _Wanted,
    contenders: Sequence[Contender],
    base: str,
    refused: Mapping[str, str],
    peaks: Mapping[str, int | None],
    limits: Limits,
    margin: float,
    *,
    unstable: bool,
) -> VariantTiming:
    by_name = {each.name: each for each in contenders}
    contender = by_name.get(wanted.name)
    if contender is None:
        return VariantTiming(wanted.name, wanted.spec, failure=refused[wanted.name])
    if contender.failure is not None:
        error = contender.failure
        return VariantTiming(
            wanted.name,
            wanted.spec,
            warmup_ms=tuple(contender.warmup_ms),
            failure=f"it raised {type(error).__name__}: {_one_line(error)}",
        )
    ratio = verdict = None
    if wanted.name != base and contender.samples_ms:
        ratio = widened(paired_ratio(by_name[base].samples_ms, contender.samples_ms, limits.confidence), margin)
        verdict = Verdict.UNSTABLE if unstable else judge(ratio)
    return VariantTiming(
        wanted.name,
        wanted.spec,
        tuple(contender.samples_ms),
        tuple(contender.warmup_ms),
        peaks.get(wanted.name),
        contender.calls,
        ratio,
        verdict,
    )


def _batch(inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> int | None:
    """Samples per step: the length of a list of samples, else the first size of the first tensor."""
    for value in (*inputs, *kwargs.values()):
        if isinstance(value, list | tuple) and value:
            return len(value)
        if isinstance(value, torch.Tensor) and value.dim() > 0:
            return int(value.shape[0])
    return None


def _notes(samples: Mapping[str, Sequence[float]], base: str) -> tuple[str, ...]:
    rounds = len(samples.get(base, ()))
    if len(samples) > 1 and rounds < FEWEST_PAIRS:
        return (f"{rounds} rounds fit into the time budget and an interval needs {FEWEST_PAIRS}: give it more time",)
    return ()


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
