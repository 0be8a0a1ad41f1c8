"""Measurements load again exactly as they were saved, raw samples above all; what is damaged is named by its place."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from report import bench_sample as sample

from nhwc.errors import SchemaError
from nhwc.schema import BENCH_VERSION, dump_bench, load_bench
from nhwc.timing import MODES, Benchmark, Conditions, Load, Ratio, VariantTiming, Verdict

SAVED = Path(__file__).parent / "golden" / "schema" / "bench_v1.json"


def every_field(cls: type, **known: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    """Instances with every field drawn, optional ones too."""
    return st.builds(cls, **{field.name: known.get(field.name, ...) for field in dataclasses.fields(cls)})


numbers = st.floats(allow_nan=False)
times = st.floats(1e-300, 1e300)
samples = st.lists(times, max_size=4).map(tuple)


def with_sound_ratio(variant: VariantTiming, bounds: list[float], verdict: Verdict | None) -> VariantTiming:
    """A ratio of as many pairs as there are samples, its estimate within its interval, and a verdict that it allows."""
    low, estimate, high = sorted(bounds)
    allowed = {Verdict.FASTER: low > 1.0, Verdict.SLOWER: high < 1.0}
    return dataclasses.replace(
        variant,
        ratio=Ratio(estimate, low, high, len(variant.samples_ms)),
        verdict=verdict if verdict is None or allowed.get(verdict, True) else Verdict.UNSTABLE,
    )


without_ratio = every_field(VariantTiming, samples_ms=samples, warmup_ms=samples, calls=st.integers(1), ratio=st.none())
bounds = st.lists(times, min_size=3, max_size=3)
variants = without_ratio | st.builds(with_sound_ratio, without_ratio, bounds, st.none() | st.sampled_from(Verdict))
loads = every_field(Load, cores=numbers, others=numbers, stolen=numbers, throttled=numbers)
few = st.lists(variants, min_size=1, max_size=3, unique_by=lambda each: each.name)
conditions = every_field(Conditions, cores=numbers)
benchmarks = few.flatmap(
    lambda chosen: every_field(
        Benchmark,
        variants=st.just(tuple(chosen)),
        baseline=st.just(chosen[0].name),
        conditions=conditions,
        load=st.none() | loads,
        mode=st.sampled_from(MODES),
        batch=st.none() | st.integers(1),
        precision=times,
        margin=st.floats(0.0, 0.99),
        confidence=st.floats(0.01, 0.99),
        **dict.fromkeys(("budget_s", "seconds"), numbers),
    )
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(benchmarks)
def test_any_measurement_loads_again_exactly(benchmark: Benchmark) -> None:
    assert load_bench(json.dumps(dump_bench(benchmark), allow_nan=False)) == benchmark


@pytest.mark.parametrize("name", sample.SAMPLES)
def test_samples_load_again_from_a_file(name: str, tmp_path: Path) -> None:
    benchmark = sample.SAMPLES[name]()
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(dump_bench(benchmark)), encoding="utf-8")
    assert load_bench(path) == benchmark
    assert load_bench(path).variants[0].samples_ms == benchmark.variants[0].samples_ms


def test_medians_and_throughputs_are_written_for_quick_readers() -> None:
    benchmark = sample.faster()
    document = dump_bench(benchmark)
    assert list(document)[:3] == ["format", "version", "target"]
    first = document["variants"][0]
    assert first["median_ms"] == benchmark.variants[0].median_ms
    assert first["throughput_per_s"] == pytest.approx(1000 * 8 / first["median_ms"])
    assert dump_bench(sample.alone())["variants"][0]["throughput_per_s"] is None


def test_what_is_derived_is_made_anew_on_loading() -> None:
    document = dump_bench(sample.faster())
    document["variants"][0]["median_ms"] = 1.0
    document["headline"] = "nothing"
    assert load_bench(document) == sample.faster()


def test_a_file_of_version_1_still_loads() -> None:
    assert load_bench(SAVED) == sample.several()


def damaged(*path: object, value: object = None) -> dict[str, object]:
    """A good document with one value replaced, or taken out where it is None."""
    document = json.loads(json.dumps(dump_bench(sample.faster())))
    place = document
    for part in path[:-1]:
        place = place[part]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return document


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (damaged("variants"), "is damaged (variants: is missing)"),
        (damaged("variants", value=7), "is damaged (variants: expected a list"),
        (damaged("variants", 1, value=7), "variants[1]: expected an object, got int"),
        (damaged("variants", 1, "samples_ms", 3, value="x"), "variants[1].samples_ms[3]: expected float, got str"),
        (damaged("variants", 1, "verdict", value="great"), "variants[1].verdict: expected one of faster, slower"),
        (damaged("variants", 1, "name", value="contiguous"), "variants: two of them have the same name"),
        (damaged("variants", 1, "samples_ms", 3, value=-1.0), "variants[1].samples_ms: a time is not above 0 ms"),
        (damaged("variants", 1, "calls", value=0), "variants[1].calls: 0 is not possible"),
        (damaged("variants", 1, "ratio", "low", value=9.0), "variants[1].ratio: 1."),
        (damaged("variants", 1, "ratio", "estimate", value={"float": "nan"}), "variants[1].ratio: nan does not lie"),
        (damaged("variants", 1, "ratio", "pairs", value=7), "variants[1].ratio: 7 pairs of"),
        (damaged("variants", 1, "verdict", value="slower"), "variants[1].verdict: slower is not what the interval"),
        (damaged("mode", value="dreaming"), "mode: 'dreaming' is not possible"),
        (damaged("batch", value=-1), "batch: -1 is not possible"),
        (damaged("confidence", value=7.0), "confidence: 7.0 is not possible"),
        (damaged("baseline", value="else"), "variants: none of them is the baseline 'else'"),
        (damaged("conditions", "cores"), "conditions.cores: is missing"),
        (damaged("surprise", value=1), "surprise: is a field that this version does not have"),
        (damaged("version", value=BENCH_VERSION + 1), f"has version {BENCH_VERSION + 1} and this nhwc reads up to"),
        (damaged("format", value="nhwc-report"), "has the format 'nhwc-report', not 'nhwc-bench'"),
    ],
)
def test_damage_is_named_by_its_place(document: dict[str, object], sentence: str) -> None:
    with pytest.raises(SchemaError) as caught:
        load_bench(document)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_field_that_an_older_file_lacks_gets_its_default() -> None:
    document = dump_bench(sample.faster())
    del document["notes"], document["variants"][0]["peak_bytes"]
    assert load_bench(document).variants[0] == replace(sample.faster().variants[0], peak_bytes=None)
