"""A suite as it would be measured, with made-up ratios: one row for each thing its report must say."""

from __future__ import annotations

from report import bench_sample

from nhwc.suite import Claim, SuiteResult, SuiteRow
from nhwc.timing import Benchmark, Ratio, Verdict

CLAIM = Claim("cpu", "Xeon, Ice Lake or newer", 1.26, 1.76)


def measured(low: float, high: float, verdict: Verdict, **fields: object) -> Benchmark:
    ratio = Ratio((low * high) ** 0.5, low, high, 40)
    return bench_sample.benchmark(bench_sample.timing("channels_last", 600.0, ratio, verdict), **fields)


def suite() -> SuiteResult:
    rows = (
        SuiteRow("alexnet", "inference", CLAIM, measured(1.14, 1.18, Verdict.FASTER)),
        SuiteRow("densenet121", "inference", CLAIM, measured(0.95, 0.99, Verdict.SLOWER)),
        SuiteRow("mobilenet_v2", "inference", None, measured(1.78, 1.83, Verdict.FASTER)),
        SuiteRow("resnet50", "inference", CLAIM, measured(1.30, 1.34, Verdict.FASTER)),
        SuiteRow("resnext101_32x8d", "inference", CLAIM, measured(1.24, 1.28, Verdict.FASTER)),
        SuiteRow("squeezenet1_1", "inference", CLAIM, measured(1.84, 1.89, Verdict.FASTER)),
        SuiteRow("vgg11", "inference", CLAIM, measured(0.99, 1.01, Verdict.CANNOT_TELL)),
        SuiteRow("vgg19", "inference", CLAIM, None, "its process was ended by SIGKILL, as where memory runs out"),
        SuiteRow("resnet50", "training", CLAIM, measured(1.10, 1.12, Verdict.FASTER)),
        SuiteRow("vgg11", "training", CLAIM, measured(1.3, 1.5, Verdict.FASTER, unstable=("the clock drifted.",))),
        SuiteRow("vgg13", "training", CLAIM, bench_sample.failed()),
    )
    settings = (("batch", "8"), ("budget", "60"))
    return SuiteResult("tutorial", "the models of a tutorial", settings, bench_sample.CONDITIONS, rows, missing=2)


def hostile() -> SuiteResult:
    words = bench_sample.HOSTILE
    rows = (
        SuiteRow(words, "inference", Claim("cpu", words, 1.1, 1.2), bench_sample.hostile()),
        SuiteRow(words, "training", None, None, words),
    )
    return SuiteResult(words, words, ((words, words),), bench_sample.CONDITIONS, rows)
