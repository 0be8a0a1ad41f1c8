"""``nhwc doctor``: what it asks for, what it prints, and what it leaves alone."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from cli.conftest import Ran
from typer.testing import CliRunner

from nhwc import api
from nhwc.api import HealthReport
from nhwc.cli.main import app
from nhwc.errors import TargetError
from nhwc.health import AllocatorGain, Fact, State
from nhwc.model import Environment
from nhwc.timing import Ratio

GAIN = AllocatorGain("glibc malloc", "tcmalloc", "LD_PRELOAD=x", Ratio(2.0, 1.9, 2.1, 6), (2.0,) * 6, (1.0,) * 6)
FACTS = (
    Fact("threads", "cores", "2 cores", State.FINE),
    Fact("memory", "allocator", "glibc malloc", State.BETTER, "preload tcmalloc"),
    Fact("memory", "limit", "2 GiB\x1b[31m", State.FINE),
    Fact("torch settings", "oneDNN", "disabled", State.WRONG, "enable it", "https://example.org/backends"),
)
REPORT = HealthReport(Environment("2.14.1", "3.11.0", "cpu", "a processor", 2, "0.1.0"), FACTS, GAIN, 1.5)

Doctor = Callable[..., Ran]


@pytest.fixture
def doctor(monkeypatch: pytest.MonkeyPatch) -> tuple[Doctor, list[tuple[Any, bool]]]:
    """Run the command with an examination that is made up; and what it was asked for."""
    asked: list[tuple[Any, bool]] = []

    def examine(device: Any = None, *, quick: bool = False, progress: Any = None) -> HealthReport:
        asked.append((device, quick))
        progress("looking", 0, 1)
        if device == "cuda":
            raise TargetError("there is no GPU")
        if device == "stop":
            raise KeyboardInterrupt
        return REPORT

    monkeypatch.setattr(api, "doctor", examine)

    def run(*arguments: str) -> Ran:
        result = CliRunner().invoke(app, ["doctor", *arguments])
        return Ran(result.exit_code, result.stdout, result.stderr)

    return run, asked


def test_each_fact_is_printed_with_its_state_and_what_to_do(doctor: tuple[Doctor, list[Any]]) -> None:
    run, asked = doctor
    ran = run()
    assert (ran.code, ran.err, asked) == (0, "", [(None, False)])
    lines = [" ".join(line.split()) for line in ran.out.splitlines()]
    assert lines == [
        "Of 4 facts 2 are fine, 1 wrong, 1 could be better.",
        "",
        "threads",
        "fine cores 2 cores",
        "",
        "memory",
        "could be better allocator glibc malloc",
        "→ preload tcmalloc",
        "fine limit 2 GiB\\x1b[31m",
        "",
        "torch settings",
        "wrong oneDNN disabled",
        "→ enable it",
        "→ https://example.org/backends",
    ]


def test_json_holds_every_fact_and_the_raw_samples(doctor: tuple[Doctor, list[Any]]) -> None:
    run, asked = doctor
    ran = run("--json", "--quick", "--device", "cpu")
    assert (ran.code, asked) == (0, [("cpu", True)])
    document = json.loads(ran.out)
    assert (document["format"], document["version"], document["seconds"]) == ("nhwc-health", 1, 1.5)
    assert document["facts"][1] == {
        "subject": "memory",
        "name": "allocator",
        "value": "glibc malloc",
        "state": "could be better",
        "advice": "preload tcmalloc",
        "source": "",
    }
    assert document["gain"]["ratio"] == {"estimate": 2.0, "low": 1.9, "high": 2.1, "pairs": 6}
    assert document["gain"]["plain_ms"] == [2.0] * 6


def test_a_device_that_is_not_there_is_one_sentence(doctor: tuple[Doctor, list[Any]]) -> None:
    run, _ = doctor
    ran = run("--device", "cuda")
    assert (ran.code, ran.out, ran.err) == (2, "", "nhwc: there is no GPU\n")


def test_an_interrupt_is_one_word(doctor: tuple[Doctor, list[Any]]) -> None:
    run, _ = doctor
    ran = run("--device", "stop")
    assert (ran.code, ran.err) == (130, "nhwc: interrupted\n")


def test_an_option_that_does_not_exist_is_bad_input(doctor: tuple[Doctor, list[Any]]) -> None:
    run, _ = doctor
    assert run("--fast").code == 2


def test_the_states_are_told_in_ascii_and_in_color() -> None:
    assert "\x1b[" in REPORT.render("text", color=True)
    assert max(len(line) for line in REPORT.render("text", width=60).splitlines()) <= 60


@pytest.mark.parametrize("device", ["tpu", "mps", "cuda:99", torch.device("meta")])
def test_devices_that_cannot_be_examined_are_refused(device: Any) -> None:
    with pytest.raises(TargetError):
        api.doctor(device)
