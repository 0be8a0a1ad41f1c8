"""The doctor on this machine, and where its parts fail."""

import os
import sys

import pytest
import torch

import nhwc
from nhwc.api import examining
from nhwc.health import State
from nhwc.machine import ChildError, allocation
from nhwc.machine.allocation import Contest, Samples


def test_this_machine_is_examined_and_left_as_it_was() -> None:
    before = (dict(os.environ), torch.random.get_rng_state().tolist(), torch.backends.cudnn.benchmark, list(sys.path))
    report = nhwc.doctor(quick=True)
    after = (dict(os.environ), torch.random.get_rng_state().tolist(), torch.backends.cudnn.benchmark, list(sys.path))
    assert after == before
    found = {(fact.subject, fact.name): fact for fact in report.facts}
    assert torch.__version__ in found["torch build", "torch"].value
    assert found["processor", "ATen uses"].value == torch.backends.cpu.get_cpu_capability()
    assert found["torch settings", "deterministic algorithms"].value == "off"
    assert all(fact.advice or fact.state is State.FINE for fact in report.facts)


@pytest.fixture
def paired(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = Contest({}, {}, "tcmalloc", "LD_PRELOAD=x.so")
    monkeypatch.setattr(allocation, "contest", lambda _sources: chosen)
    monkeypatch.setattr(allocation, "look", lambda _sources: {"onednn": ["a,info,cpu,isa:Intel AVX2"]})
    samples = Samples("glibc malloc", "tcmalloc", "LD_PRELOAD=x.so", (4.0,) * 8, (2.0,) * 8, (9.0,) * 8, (0.0,) * 8)
    monkeypatch.setattr(allocation, "measure", lambda _chosen: (samples, {"onednn": ["a,info,cpu,isa:Intel AVX-512"]}))


def test_the_gain_is_a_ratio_of_paired_samples(paired: None) -> None:
    report = nhwc.doctor("cpu")
    assert report.gain.ratio is not None
    assert (report.gain.ratio.estimate, report.gain.ratio.pairs, report.gain.plain_faults) == (2.0, 8, 9.0)
    (fact,) = [each for each in report.facts if each.name == "another allocator gains"]
    assert (fact.state, fact.advice) == (State.BETTER, "run python with LD_PRELOAD=x.so")
    assert "Intel AVX-512" in {each.value for each in report.facts}


def test_a_measurement_that_fails_is_told_and_the_rest_stands(paired: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_chosen: Contest) -> None:
        raise ChildError("a child died")

    monkeypatch.setattr(allocation, "measure", fails)
    report = nhwc.doctor("cpu")
    (fact,) = [each for each in report.facts if each.name == "another allocator gains"]
    assert (fact.state, fact.advice) == (State.UNKNOWN, "the measurement failed: a child died")
    assert "Intel AVX2" in {each.value for each in report.facts}


def test_a_child_that_cannot_be_asked_leaves_the_instruction_set_unknown(
    paired: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_sources: object) -> None:
        raise ChildError("no")

    monkeypatch.setattr(allocation, "look", fails)
    facts = nhwc.doctor("cpu", quick=True).facts
    assert [each.state for each in facts if each.name == "oneDNN uses"] == [State.UNKNOWN]


def test_where_nothing_can_be_preloaded_nothing_is_claimed(paired: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocation, "contest", lambda _sources: None)
    report = nhwc.doctor("cpu")
    assert "another allocator gains" not in {each.name for each in report.facts}


def test_stages_are_told() -> None:
    told: list[tuple[str, int, int]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(examining, "_asked", lambda _sources: (examining.AllocatorGain(), ()))
        nhwc.doctor("cpu", quick=True, progress=lambda *stage: told.append(stage))
    assert told == [("looking around", 0, 2), ("asking oneDNN", 1, 2), ("done", 2, 2)]
