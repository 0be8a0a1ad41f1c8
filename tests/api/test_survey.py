"""The verb survey: what it finds, what it leaves alone, and operators that crash or hang."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from made_up_operators import row

import nhwc.ops
from nhwc.api import surveying
from nhwc.errors import TargetError
from nhwc.operators import Handling
from nhwc.schema.typed import plain

STAND_IN = """
import json, os, sys, time
ROW = json.loads(sys.argv[1])
for line in sys.stdin:
    question = json.loads(line)
    name = question.get("operator")
    if "list" in question:
        answer = {"names": [[each, "operator"] for each in ("first", "dies", "hangs", "raises", "last")], "notes": []}
    elif name == "dies":
        os._exit(7)
    elif name == "hangs":
        time.sleep(60)
    elif name == "raises":
        print(json.dumps({"error": "ValueError: no"}), flush=True)
        continue
    else:
        answer = [{**ROW, "name": name}]
    print(json.dumps({"answer": answer}), flush=True)
"""


def test_operators_that_die_hang_or_raise_are_named_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch)
    said: list[tuple[str, int, int]] = []
    report = nhwc.ops.survey(timeout_s=0.5, progress=lambda *told: said.append(told))
    assert [each.name for each in report.rows] == ["first", "last"]
    reasons = {each.name: each.reason for each in report.failures}
    assert list(reasons) == ["dies", "hangs", "raises"]
    assert "exit code 7" in reasons["dies"]
    assert "did not answer within" in reasons["hangs"]
    assert "ValueError: no" in reasons["raises"]
    assert said[-1] == ("done", 5, 5)


def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    script = tmp_path / "stand_in.py"
    script.write_text(STAND_IN)
    made_up = json.dumps(plain(row("made up", **changes)))
    monkeypatch.setattr(surveying, "_COMMAND", [sys.executable, str(script), made_up])
    monkeypatch.setattr(surveying, "_START_S", 5.0)


def test_a_survey_goes_on_in_its_file_and_asks_again_for_what_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = tmp_path / "ops.part"
    stand_in(tmp_path, monkeypatch)
    first = nhwc.ops.survey(timeout_s=0.5, resume=part)
    stand_in(tmp_path, monkeypatch, samples=99)
    second = nhwc.ops.survey(timeout_s=0.5, resume=part)
    assert second.rows == first.rows  # not asked for again
    assert [each.name for each in second.failures] == ["dies", "hangs", "raises"]
    assert (second.started, second.seconds > first.seconds) == (first.started, True)
    with pytest.raises(TargetError, match="part of another survey"):
        nhwc.ops.survey(dtypes=("float64",), resume=part)


def test_modes_are_added_to_a_file_and_kernels_asked_for_where_one_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = tmp_path / "ops.part"
    stand_in(tmp_path, monkeypatch, kernels=("pool",))
    nhwc.ops.survey(timeout_s=0.5, resume=part)
    stand_in(tmp_path, monkeypatch, mode="kernels", samples=7)
    report = nhwc.ops.survey(timeout_s=0.5, resume=part, kernels=True)
    told = [(each.name, each.mode, each.samples, each.kernels) for each in report.rows]
    assert told == [
        (name, *rest) for name in ("first", "last") for rest in (("eager", 4, ("pool",)), ("kernels", 7, ("pool",)))
    ]
    assert report.modes == ("eager", "kernels")
    # what failed before is asked for again; without rows nothing is known to serve it
    assert [each.name for each in report.failures] == ["dies", "hangs", "raises"]
    compiled = nhwc.ops.survey(timeout_s=0.5, resume=part, compiled="own")
    assert compiled.own_modes == ("compiled",)
    assert [each.mode for each in compiled.rows] == ["eager", "eager"]  # the stand-in has torch's operators alone


@pytest.mark.slow
def test_kernels_that_serve_an_operator_are_named_and_switched_on() -> None:
    report = nhwc.ops.survey("avg_pool, 2 wide", dtypes=("float32",), kernels=True)
    told = {(each.dims, each.mode): (each.forward.handling, each.kernels) for each in report.rows}
    assert told == {
        (2, "eager"): (Handling.KEEPS, ()),
        (3, "eager"): (Handling.LOSES, ("avg_pool3d",)),
        (3, "kernels"): (Handling.KEEPS, ("avg_pool3d",)),
    }


def test_a_survey_of_one_idiom_leaves_this_process_as_it_was(tmp_path: Path) -> None:
    before = torch.get_rng_state(), torch.get_default_dtype(), torch.is_grad_enabled()
    report = nhwc.ops.survey("flatten before Linear", dtypes=("float32",))
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1:] == (torch.get_default_dtype(), torch.is_grad_enabled())
    assert [(each.dims, each.forward.handling) for each in report.rows] == [(2, Handling.COPIES), (3, Handling.COPIES)]
    assert nhwc.ops.load(report.save(tmp_path / "table.json")) == report
    assert nhwc.ops.changes(report, report) == ()


def test_what_cannot_be_surveyed_is_refused_at_once() -> None:
    with pytest.raises(TargetError, match="name some of float32"):
        nhwc.ops.survey(dtypes=("int8",))
    with pytest.raises(TargetError, match="name one of none, own, all"):
        nhwc.ops.survey(speed="fast")
    with pytest.raises(TargetError, match="compiled='yes' is not known"):
        nhwc.ops.survey(compiled="yes")
    with pytest.raises(TargetError, match="there is no device 'nowhere'"):
        nhwc.ops.survey(device="nowhere")


@pytest.mark.slow
def test_speed_is_measured_forward_and_with_backward() -> None:
    report = nhwc.ops.survey("residual add and relu", dtypes=("float32",), speed="own")
    for each in report.rows:
        assert [name for name, _ in each.speeds] == ["forward", "forward and backward"]
        for _, speed in each.speeds:
            assert speed.ratio.pairs >= 6
            assert speed.ratio.low <= speed.ratio.estimate <= speed.ratio.high
            assert speed.shape in {(8, 64, 56, 56), (2, 32, 16, 32, 32)}
