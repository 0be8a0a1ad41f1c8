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

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nhwc.schema.document import load_document
from nhwc.schema.typed import DamageError, Reader, plain, within_part
from nhwc.timing import Benchmark

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
    return benchmark


def _without_derived(written: Any) -> Any:
    if not isinstance(written, Mapping):
        return written  # the reader says what is wrong with it
    return {key: value for key, value in written.items() if key not in _DERIVED_OF_VARIANT}


def _check_names(benchmark: Benchmark) -> None:
    names = [variant.name for variant in benchmark.variants]
    if len(set(names)) < len(names):
        raise DamageError("two of them have the same name")
    if benchmark.baseline not in names:
        raise DamageError(f"none of them is the baseline {benchmark.baseline!r}")
