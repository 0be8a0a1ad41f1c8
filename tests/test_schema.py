"""What is saved loads again, exactly; what is not ours, damaged or newer is refused in one sentence."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from report import sample

from nhwc.errors import SchemaError
from nhwc.model import (
    Call,
    Environment,
    Finding,
    InnerCopy,
    Measurement,
    OptimizerStateMeta,
    ParameterMeta,
    RankLayout,
    Reorder,
    Report,
    Source,
    StepError,
    TensorMeta,
    Trace,
)
from nhwc.schema import VERSION, dump_report, dump_trace, load_report, load_trace

SAVED = Path(__file__).parent / "golden" / "schema"

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.just("tensor"), st.integers(0, 9), max_size=1),
    max_leaves=4,
)
st.register_type_strategy(float, st.floats(allow_nan=False))


def every_field(cls: type, **known: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    """Instances with every field drawn, optional ones too."""
    return st.builds(cls, **{field.name: known.get(field.name, ...) for field in dataclasses.fields(cls)})


def few(strategy: st.SearchStrategy[object]) -> st.SearchStrategy[tuple[object, ...]]:
    return st.lists(strategy, max_size=2).map(tuple)


for plain in (TensorMeta, Source, Reorder, Environment, Measurement, StepError, OptimizerStateMeta, RankLayout):
    st.register_type_strategy(plain, every_field(plain))
for nested in (InnerCopy, ParameterMeta, Finding):
    st.register_type_strategy(nested, every_field(nested))
calls = every_field(
    Call,
    arguments=few(json_values),
    keywords=few(st.tuples(st.text(), json_values)),
    inputs=few(st.from_type(TensorMeta)),
    outputs=few(st.from_type(TensorMeta)),
)
traces = every_field(Trace, calls=few(calls))
reports = st.builds(Report, traces, st.lists(st.from_type(Finding), max_size=3))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(traces)
def test_any_trace_loads_again_exactly(trace: Trace) -> None:
    assert load_trace(json.dumps(dump_trace(trace), allow_nan=False)) == trace


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(reports)
def test_any_report_loads_again_exactly(report: Report) -> None:
    assert load_report(json.dumps(dump_report(report), allow_nan=False)) == report


@pytest.mark.parametrize("name", sample.SAMPLES)
def test_samples_load_again_from_a_file(name: str, tmp_path: Path) -> None:
    report = sample.SAMPLES[name]()
    path = tmp_path / "report.json"
    path.write_text(json.dumps(dump_report(report)), encoding="utf-8")
    assert load_report(path) == report
    assert load_report(str(path)) == report


def test_a_document_opens_with_its_format_and_version() -> None:
    report = sample.clean_resnet()
    assert list(dump_report(report))[:2] == ["format", "version"]
    assert list(dump_trace(report.trace))[:2] == ["format", "version"]
    assert (dump_report(report)["format"], dump_trace(report.trace)["format"]) == ("nhwc-report", "nhwc-trace")


def test_findings_carry_the_names_of_the_model_as_plain_values() -> None:
    (row, *_) = dump_report(sample.fused_optimizer())["findings"]
    assert list(row) == [field.name for field in dataclasses.fields(Finding)]
    assert (type(row["severity"]), type(row["phase"])) == (str, str)
    assert (row["severity"], row["phase"], row["source"]) == ("error", "optimizer", "/home/kim/project/train.py:88")


def test_totals_are_those_of_the_report() -> None:
    report = sample.shufflenet()
    totals = dump_report(report)["totals"]
    assert totals["lost_ms"] == pytest.approx(16 * 0.6 + 3 * 0.11)
    assert totals["lost_bytes"] == sum(finding.bytes for finding in report.findings)
    assert totals["culprits"] == 16


def test_totals_that_are_not_finite_are_still_json() -> None:
    report = sample.shufflenet()
    endless = Report(report.trace, [dataclasses.replace(report.findings[0], ms=float("inf"))])
    document = json.loads(json.dumps(dump_report(endless), allow_nan=False))
    assert document["totals"]["lost_ms"] == {"float": "inf"}
    assert load_report(document) == endless


def test_two_functions_on_one_line_stay_apart() -> None:
    report = sample.shufflenet()
    first, second = report.findings[:2]
    assert first.source is not None
    other = dataclasses.replace(second, source=dataclasses.replace(first.source, function="<lambda>"))
    loaded = load_report(dump_report(Report(report.trace, [first, other])))
    assert [finding.source.function for finding in loaded.findings if finding.source] == ["channel_shuffle", "<lambda>"]


def test_tables_make_a_large_trace_less_than_half_as_long() -> None:
    report = sample.large(1000)
    assert len(json.dumps(dump_report(report))) < 0.5 * len(json.dumps(dataclasses.asdict(report)))


def test_a_file_of_version_1_still_loads() -> None:
    assert load_report(SAVED / "report_v1.json") == sample.raising()


def test_a_field_that_an_older_file_lacks_gets_its_default() -> None:
    document = dump_report(sample.training())
    del document["findings"][0]["share"]
    document["trace"]["tensor_fields"].remove("name")
    document["trace"]["tensors"] = [row[:-1] for row in document["trace"]["tensors"]]
    loaded = load_report(document)
    assert loaded.findings[0].share is None
    assert loaded.trace.inputs[0].name is None


def damaged(*path: object, value: object = None) -> dict[str, object]:
    """A good document with one value replaced, or taken out where it is None."""
    document = json.loads(json.dumps(dump_report(sample.training())))
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
        (damaged("trace"), "is damaged (trace: is missing)"),
        (damaged("trace", value="/etc/hostname"), "is damaged (trace: expected an object)"),
        (damaged("sources", value=3), "source '"),
        (damaged("findings", value={}), "is damaged (expected a list, got '{}')"),
        (damaged("findings", 0, value=7), "is damaged (findings[0]: expected an object, got int)"),
        (damaged("findings", 1, "code"), "is damaged (findings[1].code: is missing)"),
        (
            damaged("findings", 1, "severity", value="fatal"),
            "findings[1].severity: expected one of error, warning, note",
        ),
        (damaged("findings", 0, "bytes", value="7"), "findings[0].bytes: expected int, got str"),
        (damaged("findings", 0, "bytes", value=True), "findings[0].bytes: expected int, got bool"),
        (damaged("findings", 0, "shapes", 0, 1, value=1.5), "findings[0].shapes[0][1]: expected int, got float"),
        (damaged("findings", 0, "source", value="x.py:1"), "source 'x.py:1' is not in sources"),
        (damaged("surprise", value=1), "surprise: is a field that this version does not have"),
        (damaged("trace", "calls", 4, "inputs", 0, value=10**6), "calls[4].inputs[0]: expected a row number below"),
        (damaged("trace", "calls", 4, "surprise", value=1), "calls[4].surprise: is a field that this version"),
        (damaged("trace", "tensors", 2, value=[1]), "tensors[2]: expected a list of 8"),
        (damaged("trace", "tensors", 2, 0, value="x"), "tensors[2].shape: expected a list"),
        (damaged("trace", "layers", 0, value=["a"]), "layers[0]: expected a list of 2"),
        (damaged("trace", "tensors"), "is damaged (tensors: expected a list"),
        (damaged("version", value="1"), "is damaged (version: expected a number from 1, got '1')"),
        (
            damaged("version", value=VERSION + 1),
            f"has version {VERSION + 1} and this nhwc reads up to {VERSION}; update",
        ),
        (damaged("format", value="onnx"), "has the format 'onnx', not 'nhwc-report'"),
    ],
)
def test_damage_is_named_by_its_place(document: dict[str, object], sentence: str) -> None:
    with pytest.raises(SchemaError) as caught:
        load_report(document)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_trace_is_not_a_report() -> None:
    with pytest.raises(SchemaError, match="has the format 'nhwc-trace', not 'nhwc-report'"):
        load_report(dump_trace(sample.raising().trace))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is not JSON"),
        (b"[1]", "holds a JSON list, not an object"),
        (b'{"format": "nhwc-report"', "is not JSON"),
        (b"\xff\xfe\x00", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
    ],
)
def test_files_that_are_not_ours(content: bytes, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(content)
    with pytest.raises(SchemaError, match=sentence) as caught:
        load_report(path)
    assert "file.json" in str(caught.value)


def test_paths_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.json", tmp_path, str(tmp_path / "missing.json"), "bad\0path"):
        with pytest.raises(SchemaError):
            load_report(path)


@pytest.mark.parametrize("source", [["x"], {}, 7])
def test_a_finding_whose_source_is_no_text_is_damage(source: object) -> None:
    document = dump_report(sample.shufflenet())
    document["findings"][0]["source"] = source
    with pytest.raises(SchemaError, match="damaged"):
        load_report(document)
