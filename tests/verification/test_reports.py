"""A verification as text and as JSON, and back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import nhwc
from nhwc.api import VerifyReport
from nhwc.errors import RegistryError, SchemaError
from nhwc.model import Phase, Source, TensorMeta
from nhwc.proof import Divergence, Outcome, ResultError, VariantProof

META = TensorMeta((2, 4, 6, 6), (144, 1, 24, 4), "float32", "cpu", 3, 0, 4, "layer.weight")
FAULT = Divergence(
    "planted.op.default",
    "layer.0",
    Source("model.py", 7, "return op(x)", "forward"),
    Phase.BACKWARD,
    (META,),
    (META,),
    "on the same values, result 0: its error is 0.2",
    0.2,
    1e-7,
    "faults/reproduce_planted_op.py",
    True,
)
RESULTS = (
    ResultError("output", "output", 1e-7, 1e-7, 4e-6, True),
    ResultError("gradient", "layer.weight", 0.2, 1e-7, 4e-6, False, "its error is 0.2"),
    ResultError("buffer", "bn.running_mean", float("inf"), 0.0, 0.0, False, "it is missing"),
)
REPORT = VerifyReport(
    "net",
    True,
    8.0,
    (
        VariantProof("as_is", "as_is", Outcome.PASSED, "every result agrees", RESULTS[:1]),
        VariantProof("channels_last", "channels_last", Outcome.DIVERGED, "gradient", RESULTS, FAULT),
        VariantProof("channels_last+compile", "channels_last+compile", Outcome.NOT_COMPARABLE, "it draws"),
    ),
    "cpu",
    "2.14.1",
    1.25,
    ("random numbers were replayed",),
)


def test_json_reads_back_equal(tmp_path: Path) -> None:
    assert nhwc.load_verification(REPORT.save(tmp_path / "proof.json")) == REPORT
    assert nhwc.load_verification(REPORT.render("json")) == REPORT


def test_text_tells_outcomes_results_and_the_operator() -> None:
    text = str(REPORT)
    assert text.startswith("Diverged: channels_last does not compute what contiguous format computes.")
    for part in (
        "gradient of layer.weight: error 0.2, contiguous 1e-07, limit 4e-06",
        "buffer of bn.running_mean: it is missing",
        "planted.op.default (backward)",
        "layer.0",
        "model.py:7",
        "(144, 1, 24, 4)",
        "it was run alone and showed the fault",
        "Random numbers were replayed.",
    ):
        assert part in text


def test_kernels_that_were_on_are_named() -> None:
    on = replace(REPORT, variants=(replace(REPORT.variants[0], kernels=("cat", "pad")), *REPORT.variants[1:]))
    assert "nhwc's kernels were on: cat, pad" in str(on)
    assert "kernels were on" not in str(REPORT)
    assert nhwc.load_verification(on.render("json")) == on


def test_what_passes_says_so() -> None:
    passed = replace(REPORT, variants=REPORT.variants[:1])
    assert passed.passed
    assert str(passed).startswith("Passed: as_is computes what contiguous format computes.")
    assert "Passed" in repr(passed)


def test_damage_and_unknown_formats_are_told() -> None:
    with pytest.raises(SchemaError, match="damaged"):
        nhwc.load_verification('{"format": "nhwc-verification", "version": 1, "target": 3}')
    with pytest.raises(SchemaError, match="not 'nhwc-verification'"):
        nhwc.load_verification({"format": "nhwc-report", "version": 1})
    with pytest.raises(RegistryError):
        REPORT.save("proof.html")
