"""What benchmarks/optimize.py tells of reports, and whether its claims hold, from made-up reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import optimize as script
import pytest


def ratio(estimate: float) -> dict[str, float]:
    return {"estimate": estimate, "low": estimate - 0.1, "high": estimate + 0.1}


def report(chosen: str, plain: str = "channels_last", **ratios: float) -> dict[str, Any]:
    candidates = [{"name": plain, "median_ms": 10.0, "ratio": None}]
    candidates += [
        {"name": name, "median_ms": 10.0 / each, "ratio": ratio(each), "predicted": 1.3 if name == "planned" else None}
        for name, each in ratios.items()
    ]
    plan = {"predicted": {"contiguous": 12.0, "channels_last": 10.0, "planned": 8.0}}
    made = {"candidates": candidates, "plain": plain, "chosen": chosen, "reason": "so", "benchmark": {}, "seconds": 1.0}
    return {**made, "plan": plan}


def test_a_row_tells_what_came_back_over_the_better_plain_format() -> None:
    row = script.told(report("planned", contiguous=0.8, planned=1.2))
    assert (row["ratio"], row["chosen"], row["chosen_ms"]) == ([1.2, pytest.approx(1.1), 1.3], "planned", 10 / 1.2)
    assert (row["predicted"], row["measured"]) == (1.3, 1.2)


def test_a_model_that_stays_as_it_is_is_contiguous() -> None:
    row = script.told(report("", contiguous=0.8))
    assert (row["chosen"], row["ratio"][0]) == ("unchanged", 0.8)
    # the plan has one format: what it says of both is set against what was measured of both
    assert (row["predicted"], row["measured"]) == (1.2, pytest.approx(1.25))
    assert script.told(report("", plain="contiguous", channels_last=0.8))["ratio"] == [1.0, 1.0, 1.0]


def test_an_interval_that_is_open_is_no_loss() -> None:
    made = report("", contiguous=0.8)
    made["candidates"][1]["ratio"]["high"] = {"float": "inf"}
    row = {"model": "m", "mode": "inference", **script.told(made)}
    assert row["ratio"][2] is None
    assert next(iter(script.claims([row]).values())) == {"slower": [], "holds": True}


def rows(*ratios: float, predicted: float = 1.0, measured: float = 1.0) -> list[dict[str, Any]]:
    return [
        {"model": f"m{place}", "mode": "inference", "ratio": [each, each, each], "predicted": predicted,
         "measured": measured}
        for place, each in enumerate(ratios)
    ]  # fmt: skip


def test_claims() -> None:
    never, mean, near, count = script.claims([*rows(1.0, 1.21), {"model": "x", "mode": "training", "failure": "no"}])
    found = script.claims([*rows(1.0, 1.21), {"model": "x", "mode": "training", "failure": "no"}])
    assert found[never] == {"slower": [], "holds": True}
    assert found[mean] == {"mean": 1.1, "holds": True}
    assert found[near] == {"near": 2, "of": 2, "holds": True}
    assert (found[count]["ran"], found[count]["failed"], found[count]["of"]) == (2, 1, 88)
    worse = script.claims(rows(0.97, 1.0, predicted=1.4))
    assert worse[never] == {"slower": ["m0 inference"], "holds": False}
    assert worse[mean]["holds"] is False
    assert worse[near] == {"near": 0, "of": 2, "holds": False}
    assert not any(found["holds"] for found in script.claims([]).values() if "holds" in found)


def test_an_interrupted_run_goes_on_with_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str, int]] = []

    def optimized(model: str, mode: str, batch: int, _budget_s: float) -> dict[str, Any]:
        asked.append((model, mode, batch))
        if len(asked) == 3:
            raise KeyboardInterrupt
        return {"model": model, "mode": mode, **script.told(report("planned", contiguous=0.8, planned=1.2))}

    monkeypatch.setattr(script, "optimized", optimized)
    path = tmp_path / "found.json"
    monkeypatch.setattr("sys.argv", ["optimize.py", "-o", str(path), "--models", "resnet18,unet3d"])
    with pytest.raises(KeyboardInterrupt):
        script.main()
    assert len(json.loads(path.read_text())["results"]) == 2
    script.main()
    assert asked[2:] == [("unet3d", "inference", 2), ("unet3d", "inference", 2), ("unet3d", "training", 2)]
    assert len(json.loads(path.read_text())["results"]) == 4


def test_a_name_that_is_not_known_and_a_result_of_another_machine(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="there is no 'resnet19'"):
        script.words("--models", "resnet19", script.MODELS)
    path = tmp_path / "found.json"
    path.write_text(json.dumps({"machine": {}, "results": []}))
    with pytest.raises(SystemExit, match="measured on another machine"):
        script.read(path)


def test_a_model_that_fails_is_a_row_with_the_reason() -> None:
    row = script.optimized("no_such_model", "inference", 2, 1.0)
    assert "no_such_model" in row["failure"]
