"""Reports of engines as they would be made, with made-up times: one for each thing a page must say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from report import bench_sample
from report.bench_sample import CONDITIONS, HOSTILE

from nhwc.engine_report import Accuracy, Alternative, CopySpeed, EngineReport, Limits, StepTiming
from nhwc.timing import Verdict

LIMITS = Limits(
    2,
    90e9,
    (CopySpeed(65_536, 40e9), CopySpeed(1_048_576, 60e9), CopySpeed(16_777_216, 15e9), CopySpeed(67_108_864, 10e9)),
)


def step(module: str, operation: str, algorithm: str, ms: float, **changes: object) -> StepTiming:
    made = StepTiming(module, operation, algorithm, ((1, 64, 56, 56),), (1, 64, 56, 56), 231_211_008, 1_753_344, ms)
    return replace(made, **changes)  # type: ignore[arg-type]


def report(*steps: StepTiming, **changes: object) -> EngineReport:
    made = EngineReport(
        target="resnet18",
        inputs=(((1, 64, 56, 56), "float32"),),
        threads=2,
        exact=False,
        steps=steps,
        run_ms=11.3,
        arena_bytes=4_014_080,
        least_arena_bytes=3_211_264,
        scratch_bytes=65_536,
        weight_bytes=46_800_000,
        build_s=8.21,
        limits=LIMITS,
        instruction_set="avx512",
        accuracy=Accuracy(5.2e-7, 2.7e-7),
        conditions=CONDITIONS,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def whole() -> EngineReport:
    return report(
        step(
            "layer1.0.conv1",
            "convolution 3x3 + relu",
            "winograd F(4) blocks of 28 vectors=4 chunk=2",
            2.31,
            alternatives=(
                Alternative("winograd F(4) blocks of 28 vectors=4 chunk=2", 2.2),
                Alternative("direct 6x4, 96 rows, 2 panels, depth 256", 4.4),
            ),
        ),
        step("layer1.0.conv2", "convolution 3x3 + add + relu", "direct 6x4, 96 rows, 2 panels, depth 256", 3.9),
        step("maxpool", "maximum pool 3x3 /2", "pool", 0.21, flop=1_806_336),
        step("", "aten.lp_pool2d.default", "torch", 0.8, flop=0),
        step("head.pool", "aten.lp_pool2d.default", "torch", 0.4, flop=0),
        step("head", "aten.nonzero.default", "torch", 0.1, flop=0, output=None),
    )


def measured() -> EngineReport:
    timings = [
        bench_sample.timing(name, ms, bench_sample.FASTER, Verdict.FASTER)
        for name, ms in (("channels_last", 300.0), ("engine", 150.0))
    ]
    return replace(
        whole(),
        benchmark=bench_sample.benchmark(
            *timings, bench_sample.timing("compiled", 1.0, None, None, samples_ms=(), failure="no compiler")
        ),
    )


def outside() -> EngineReport:
    return report(*whole().steps[:2], accuracy=Accuracy(9e-5, 2e-7, ("layer1.0.conv1",)), exact=True)


def untold() -> EngineReport:
    return report(
        accuracy=Accuracy(float("nan"), float("nan"), (), "the model does not run in float64: no"), notes=("a note",)
    )


def hostile() -> EngineReport:
    return report(step(HOSTILE, HOSTILE, "torch", 1.0), target=HOSTILE)


SAMPLES: dict[str, Callable[[], EngineReport]] = {
    "whole": whole,
    "measured": measured,
    "outside": outside,
    "untold": untold,
    "hostile": hostile,
}
