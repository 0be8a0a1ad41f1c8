"""Measurements as the bench would make them, with made-up samples: one for each thing a report must say."""

from __future__ import annotations

import math
import random
from dataclasses import replace

from nhwc.timing import Benchmark, Conditions, Ratio, Stop, VariantTiming, Verdict

CONDITIONS = Conditions(
    device="cpu",
    processor="AMD EPYC 7763 64-Core Processor",
    cores=2.0,
    threads=2,
    system="Linux 6.1.0 x86_64",
    allocator="glibc malloc",
    versions=(("torch", "2.14.1"), ("torchvision", "0.29.1"), ("nhwc", "0.1.0"), ("python", "3.11.9")),
    settings=(("instruction set", "AVX2"), ("deterministic", "off")),
)
ROUNDS = 40
HOSTILE = "</svg></style><script>alert(1)</script>[bold red]\"'&<b>\u202e\x1b[31m;{{ 7*7 }}\ud800"


def samples(
    median_ms: float, seed: int, rounds: int = 40, noise: float = 0.02, drift: float = 0.0
) -> tuple[float, ...]:
    """Times around a median with a few spikes; ``drift`` is the growth from the first round to the last."""
    drawn = random.Random(seed)
    times = []
    for index in range(ROUNDS):
        factor = math.exp(drawn.gauss(0.0, noise)) * (1 + drift * index / ROUNDS)
        times.append(round(median_ms * factor * (1.4 if drawn.random() < 0.05 else 1.0), 4))
    return tuple(times)


def timing(
    name: str, median_ms: float, ratio: Ratio | None, verdict: Verdict | None, **changes: object
) -> VariantTiming:
    made = VariantTiming(
        name=name,
        spec=name,
        samples_ms=samples(median_ms, len(name)),
        warmup_ms=(3.1 * median_ms, 1.02 * median_ms),
        peak_bytes=412_000_000,
        ratio=ratio,
        verdict=verdict,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def benchmark(*others: VariantTiming, **changes: object) -> Benchmark:
    made = Benchmark(
        target="resnet50",
        mode="inference",
        baseline="contiguous",
        variants=(timing("contiguous", 789.0, None, None), *others),
        conditions=CONDITIONS,
        inputs=(((8, 3, 224, 224), "float32"),),
        batch=8,
        seed=0,
        precision=0.02,
        margin=0.01,
        confidence=0.95,
        budget_s=60.0,
        stopped=Stop.NARROW,
        seconds=48.2,
        started="2026-03-14T15:09:26+00:00",
    )
    return replace(made, **changes)  # type: ignore[arg-type]


FASTER = Ratio(1.312, 1.284, 1.339, 40)


def faster() -> Benchmark:
    return benchmark(timing("channels_last", 601.4, FASTER, Verdict.FASTER, peak_bytes=398_400_000))


def slower() -> Benchmark:
    ratio = Ratio(0.894, 0.881, 0.906, 40)
    last = timing("channels_last", 35.5, ratio, Verdict.SLOWER, calls=3)
    return benchmark(
        last,
        variants=(timing("contiguous", 31.7, None, None, calls=3), last),
        target="shufflenet_v2_x1_0",
        mode="training",
        stopped=Stop.BUDGET,
        precision=0.012,
        seconds=60.4,
    )


def cannot_tell() -> Benchmark:
    return benchmark(timing("channels_last", 784.0, Ratio(1.0062, 0.9981, 1.0143, 40), Verdict.CANNOT_TELL))


def several() -> Benchmark:
    """Five variants, one of which failed."""
    return benchmark(
        timing("channels_last", 601.4, FASTER, Verdict.FASTER),
        timing(
            "contiguous+compile", 640.0, Ratio(1.232, 1.190, 1.281, 40), Verdict.FASTER, warmup_ms=(21_000.0, 650.0)
        ),
        timing("channels_last+compile", 401.0, Ratio(1.967, 1.91, 2.03, 40), Verdict.FASTER, peak_bytes=None),
        timing("channels_last+bf16", 2402.0, Ratio(0.328, 0.322, 0.335, 40), Verdict.SLOWER),
        VariantTiming("ours", "module", failure="ours cannot be copied: it holds a lock."),
        notes=("contiguous+fp16 and channels_last+fp16 were left out: this processor has no float16 arithmetic.",),
    )


def unstable() -> Benchmark:
    last = timing("channels_last", 700.0, Ratio(1.19, 0.93, 1.51, 40), Verdict.UNSTABLE)
    drifting = replace(last, samples_ms=samples(700.0, 3, noise=0.05, drift=0.6))
    return benchmark(
        drifting,
        stopped=Stop.BUDGET,
        unstable=(
            "the times of contiguous rose by 31 % from the first third of the rounds to the last.",
            "another process used 1.2 of the 2 cores.",
        ),
    )


def failed() -> Benchmark:
    return benchmark(
        VariantTiming("channels_last", "channels_last", failure="the model raised RuntimeError: view size")
    )


def alone() -> Benchmark:
    return benchmark(batch=None, inputs=())


def hostile() -> Benchmark:
    last = timing("channels_last", 700.0, FASTER, Verdict.FASTER)
    return benchmark(
        replace(last, name=HOSTILE, spec=HOSTILE),
        VariantTiming(HOSTILE + "2", HOSTILE, failure=HOSTILE),
        target=HOSTILE,
        notes=(HOSTILE,),
        conditions=replace(CONDITIONS, processor=HOSTILE, settings=((HOSTILE, HOSTILE),)),
    )


SAMPLES = {
    "faster": faster,
    "slower": slower,
    "cannot_tell": cannot_tell,
    "several": several,
    "unstable": unstable,
    "failed": failed,
    "alone": alone,
    "hostile": hostile,
}
