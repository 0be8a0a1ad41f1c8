"""The choice of algorithms: by time, within the budget, once for requests that are alike."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from nhwc.inference import choosing
from nhwc.inference.choosing import Chooser, request_key
from nhwc.inference.measurements import Measurements
from nhwc.inference.native import Placed, Ref, Step
from nhwc.inference.operations import Convolution, Copy, Linear
from nhwc.inference.steps.registry import Candidate, Request

X, Y = torch.zeros(2, 3), torch.zeros(2, 3)
REQUEST = Request(Copy(), (Placed.constant(X),), Placed.constant(Y))
TIMES_S = {"slow": 0.3, "quick": 0.1, "middle": 0.12}
#: Timed a second time side by side: those within 1.3 of the fastest.
FINALISTS = ["quick", "middle"]


class Candidates:
    """Made-up candidates whose times are told; counts what was built and timed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.built: list[str] = []
        self.timed: list[str] = []
        monkeypatch.setattr(choosing, "_fastest", self._time)

    def _time(self, steps: Sequence[Step], *_: object) -> list[float]:
        self.timed += [step.label for step in steps]
        return [TIMES_S[step.label] for step in steps]

    def __call__(self, *labels: str) -> list[Candidate]:
        def build(label: str) -> Step:
            self.built.append(label)
            return Step("copy", Ref(), label)

        return [Candidate(label, lambda label=label: build(label)) for label in labels]  # type: ignore[misc]


@pytest.fixture
def candidates(monkeypatch: pytest.MonkeyPatch) -> Candidates:
    return Candidates(monkeypatch)


TABLE = (ctypes.c_void_p * 2)()


def choose(chooser: Chooser, found: list[Candidate], request: Request = REQUEST) -> str:
    return chooser.choose(request, found, TABLE, lambda: None).label


def test_the_fastest_is_taken_and_built_once(candidates: Candidates) -> None:
    chooser = Chooser(Measurements("m", None), 10.0)
    assert choose(chooser, candidates(*TIMES_S)) == "quick"
    assert sorted(candidates.built) == sorted(TIMES_S)


def test_requests_that_are_alike_share_a_measurement(candidates: Candidates) -> None:
    chooser = Chooser(Measurements("m", None), 10.0)
    for _ in range(3):
        assert choose(chooser, candidates(*TIMES_S)) == "quick"
    assert candidates.timed == [*TIMES_S, *FINALISTS]


def test_the_first_is_taken_when_the_budget_is_spent(candidates: Candidates) -> None:
    assert choose(Chooser(Measurements("m", None), 0.0), candidates(*TIMES_S)) == "slow"
    assert candidates.timed == []


def test_an_only_candidate_is_not_timed(candidates: Candidates) -> None:
    assert choose(Chooser(Measurements("m", None), 10.0), candidates("slow")) == "slow"
    assert candidates.timed == []


def test_another_process_need_not_measure(candidates: Candidates, tmp_path: Path) -> None:
    measured = Measurements("m", tmp_path)
    choose(Chooser(measured, 10.0), candidates(*TIMES_S))
    measured.save()
    candidates.timed.clear()
    again = Chooser(Measurements("m", tmp_path), 0.0)
    assert choose(again, candidates(*TIMES_S)) == "quick"
    assert candidates.timed == []


@pytest.mark.parametrize(("budget_s", "taken"), [(10.0, "quick"), (0.0, "middle")])
def test_a_new_algorithm_is_measured_while_there_is_time(candidates: Candidates, budget_s: float, taken: str) -> None:
    measured = Measurements("m", None)
    choose(Chooser(measured, 10.0), candidates("slow", "middle"))
    assert choose(Chooser(measured, budget_s), candidates(*TIMES_S)) == taken


def test_a_close_race_is_decided_side_by_side(candidates: Candidates, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = iter([[0.10], [0.11], [0.5], [0.13, 0.11]])
    monkeypatch.setattr(choosing, "_fastest", lambda *_: next(rounds))
    chooser = Chooser(Measurements("m", None), 10.0)
    choice = chooser.choose(REQUEST, candidates("a", "b", "c"), TABLE, lambda: None)
    assert (choice.label, choice.times_ms) == ("b", {"a": 130.0, "b": 110.0, "c": 500.0})


def test_keys_tell_apart_what_takes_another_time() -> None:
    weight = torch.zeros(4, 3, 1, 1)
    conv = Convolution(weight, None, (1, 1), (0, 0), (1, 1))
    asked = replace(REQUEST, operation=conv)
    assert request_key(asked) == request_key(replace(asked, operation=replace(conv, weight=weight + 1)))
    others = [
        replace(asked, operation=replace(conv, stride=(2, 1))),
        replace(asked, operation=replace(conv, bias=torch.zeros(4))),
        replace(asked, operation=Linear(torch.zeros(4, 3), None)),
        replace(asked, threads=2),
        replace(asked, exact=True),
        replace(asked, addend=Placed.constant(Y)),
        replace(asked, output=replace(asked.output, strides=(6, 1))),
    ]
    assert len({request_key(each) for each in [asked, *others]}) == len(others) + 1
