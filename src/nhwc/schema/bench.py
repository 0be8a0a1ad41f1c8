"""Versioned JSON for measurements: every raw sample, and the conditions that it was taken under.

A file opens with its format and version: ``{"format": "nhwc-bench", "version": 1, ...}``.

Change history
    1  first version.

A new optional field of nhwc.timing loads from older files as its default and needs no new version. Anything else (a
field renamed, removed, or with another meaning) needs one: raise BENCH_VERSION, add a line above, and add a loader that
turns the old document into the new one. docs/bench.md describes every field.

Medians and throughputs are written for readers that look no further, and made anew from the samples on loading.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nhwc.schema.document import load_document
from nhwc.schema.typed import DamageError, Reader, plain, within_part
from nhwc.timing import MODES, Benchmark, VariantTiming, Verdict

BENCH_VERSION = 1
BENCH_FORMAT = "nhwc-bench"

_DERIVED_KEYS = {"headline", "verdict"}
_DERIVED_OF_VARIANT = {"median_ms", "throughput_per_s"}

Document = dict[str, Any]


def dump_bench(benchmark: Benchmark) -> Document:
    """A measurement as JSON-able data; ``throughput_per_s`` is in samples per second.

    >>> from nhwc.timing import Conditions, Stop, VariantTiming
    >>> conditions = Conditions("cpu", "x86", 2.0, 2, "Linux", "glibc malloc", (("torch", "2.14"),))
    >>> one = VariantTiming("contiguous", "contiguous", samples_ms=(2.0, 4.0))
    >>> benchmark = Benchmark("net", "inference", "contiguous", (one,), conditions, (((8, 3, 4, 4), "float32"),), 8, 0,
    ...     0.02, 0.01, 0.95, 60.0, Stop.NARROW, 1.0, "2026-01-01T00:00:00+00:00")
    >>> document = dump_bench(benchmark)
    >>> document["variants"][0]["median_ms"], load_bench(document) == benchmark
    (3.0, True)
    """
    document = plain(benchmark)
    for written, variant in zip(document["variants"], benchmark.variants, strict=True):
        written["median_ms"] = plain(variant.median_ms)
        written["throughput_per_s"] = plain(benchmark.throughput(variant))
    return {"format": BENCH_FORMAT, "version": BENCH_VERSION, **document}


def load_bench(source: Mapping[str, Any] | str | Path) -> Benchmark:
    """The measurement in a document, in its JSON text, or in the file at a path (a str that opens with "{" is text).

    Raises SchemaError where it is not a measurement of ours, is damaged, or comes from a newer nhwc.
    """
    benchmark: Benchmark = load_document(source, BENCH_FORMAT, {1: _bench_1}, remedy="measure it again")
    return benchmark


def _bench_1(document: Mapping[str, Any]) -> Benchmark:
    body = {key: value for key, value in document.items() if key not in {"format", "version", *_DERIVED_KEYS}}
    variants = body.get("variants")
    if isinstance(variants, list):
        body["variants"] = [_without_derived(each) for each in variants]
    benchmark: Benchmark = Reader().read_fields(Benchmark, body)
    with within_part("variants"):
        _check_names(benchmark)
        for place, variant in enumerate(benchmark.variants):
            with within_part(place):
                _check_numbers(variant)
    for name, sound in (
        ("mode", benchmark.mode in MODES),
        ("batch", benchmark.batch is None or benchmark.batch > 0),
        ("confidence", 0.0 < benchmark.confidence < 1.0),
        ("margin", 0.0 <= benchmark.margin < 1.0),
        ("precision", benchmark.precision > 0.0),
    ):
        if not sound:
            raise DamageError(f"{getattr(benchmark, name)!r} is not possible").within(name)
    return benchmark


def _without_derived(written: Any) -> Any:
    if not isinstance(written, Mapping):
        return written  # the reader says what is wrong with it
    return {key: value for key, value in written.items() if key not in _DERIVED_OF_VARIANT}


def _check_numbers(variant: VariantTiming) -> None:
    times = (*variant.samples_ms, *variant.warmup_ms)
    if not all(0.0 < ms < math.inf for ms in times):
        raise DamageError("a time is not above 0 ms").within("samples_ms")
    if variant.calls < 1:
        raise DamageError(f"{variant.calls} is not possible").within("calls")
    ratio = variant.ratio
    if ratio is None:
        return
    if not 0.0 <= ratio.low <= ratio.estimate <= ratio.high or not 0.0 < ratio.estimate < math.inf:
        raise DamageError(f"{ratio.estimate} does not lie within {ratio.low} to {ratio.high}").within("ratio")
    if ratio.pairs != len(variant.samples_ms):
        raise DamageError(f"{ratio.pairs} pairs of {len(variant.samples_ms)} samples").within("ratio")
    wrong = {Verdict.FASTER: ratio.low <= 1.0, Verdict.SLOWER: ratio.high >= 1.0}
    if variant.verdict is not None and wrong.get(variant.verdict, False):
        raise DamageError(f"{variant.verdict} is not what the interval says").within("verdict")


def _check_names(benchmark: Benchmark) -> None:
    names = [variant.name for variant in benchmark.variants]
    if len(set(names)) < len(names):
        raise DamageError("two of them have the same name")
    if benchmark.baseline not in names:
        raise DamageError(f"none of them is the baseline {benchmark.baseline!r}")
