"""What is said of the engine against each peer, from made-up samples."""

from __future__ import annotations

from typing import Any

import pytest
from peers_claims import CLAIMS, Claim, judged, ratios, table


def result(model: str, batch: int, **ms: float) -> dict[str, Any]:
    contenders = [{"name": name, "samples_ms": [value] * 8, "failure": ""} for name, value in ms.items()]
    return {"model": model, "batch": batch, "contenders": contenders}


RESULTS = [
    result("resnet18", 1, engine=10.0, onnxruntime=20.0, eager_nchw=50.0),
    result("resnet18", 8, engine=10.0, onnxruntime=9.0, eager_nchw=10.0),
]


def test_a_ratio_is_the_peers_time_over_the_engines() -> None:
    found = ratios(RESULTS, "onnxruntime")
    assert {key: ratio.estimate for key, ratio in found.items()} == {
        ("resnet18", 1): pytest.approx(2.0),
        ("resnet18", 8): pytest.approx(0.9),
    }


def test_a_contender_that_failed_has_no_ratio() -> None:
    failed = result("resnet18", 1, engine=10.0, onnxruntime=20.0)
    failed["contenders"][1].update(failure="disagrees", samples_ms=[1.0])
    assert ratios([failed], "onnxruntime") == {}


@pytest.mark.parametrize(
    ("claim", "holds", "told"),
    [
        (Claim("onnxruntime", 1.3), True, "onnxruntime: 1.34 over 2 (asked 1.3): holds"),
        (Claim("onnxruntime", 1.35), False, "onnxruntime: 1.34 over 2 (asked 1.35): not met"),
        (
            Claim("onnxruntime", 1.3, each=1.0),
            False,
            "onnxruntime: 1.34 over 2 (asked 1.3, and 1.0 of each tutorial model): not met; behind on resnet18/8 0.90",
        ),
        (Claim("eager_nchw", 3.0, batch=1), True, "eager_nchw at batch 1: 5.00 over 1 (asked 3.0): holds"),
        (Claim("openvino", 1.0), False, "openvino: not measured (asked 1.0)"),
    ],
)
def test_a_claim_is_judged_on_the_mean_and_on_each_model(claim: Claim, holds: bool, told: str) -> None:
    assert judged(claim, RESULTS) == (holds, told)


def test_the_table_has_a_line_per_model_and_batch() -> None:
    lines = table(RESULTS).splitlines()
    assert len(lines) == 3
    assert lines[1].split()[:4] == ["resnet18", "1", "2.00", "(2.00"]
    assert all(claim.peer in lines[0] for claim in CLAIMS)
