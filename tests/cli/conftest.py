"""A stand-in for ``nhwc.api`` that records what the command asks for, so that no test of the command runs an audit."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from typer.testing import CliRunner

import nhwc
from nhwc.cli.main import app
from nhwc.model import Environment, Finding, Measurement, Phase, Report, Severity, Trace

ENVIRONMENT = Environment("2.14.1", "3.11.0", "cpu", "a processor", 2, "0.1.0")


def make_finding(**changes: Any) -> Finding:
    base = Finding(
        id="F1",
        code="NH101",
        kind="copy",
        severity=Severity.WARNING,
        operator="aten.clone.default",
        module="layer1",
        source=None,
        phase=Phase.FORWARD,
        shapes=((8, 64, 56, 56),),
        strides=((200704, 1, 3584, 64),),
        bytes=1_000_000,
        message="a copy",
        advice="drop it",
        ms=4.0,
    )
    return replace(base, **changes)


def make_report(*findings: Finding, step_ms: float | None = 100.0) -> Report:
    step = None if step_ms is None else Measurement(step_ms, 1.0, 5)
    return Report(Trace("a model", "eager", False, ENVIRONMENT, (), step=step), list(findings))


@dataclass
class FakeApi:
    """Answers as ``nhwc.api`` does; ``calls`` keeps what it was asked."""

    report: Report = field(default_factory=make_report)
    calls: list[tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)
    kernels: list[tuple[list[str], str]] = field(default_factory=list)
    during: Callable[[], None] = lambda: None

    def audit(self, model: torch.nn.Module, *inputs: Any, **options: Any) -> Report:
        self.calls.append((model, inputs, options))
        options["progress"]("timing", 1, 2)
        self.during()
        return self.report

    def render(self, report: Report, format_: str) -> str:
        return f"<{format_}: {len(report.findings)} findings>"

    def print_report(self, report: Report, console: Any) -> None:
        console.print(f"terminal report of {len(report.findings)} findings")

    def kernels_on(self, names: Sequence[str], device: torch.device) -> AbstractContextManager[None]:
        self.kernels.append((list(names), str(device)))
        return nullcontext()

    def fake_mode(self) -> AbstractContextManager[object]:
        return FakeTensorMode(allow_non_fake_inputs=True)


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    fake = FakeApi()
    module = ModuleType("nhwc.api")
    for name in ("audit", "render", "print_report", "fake_mode", "kernels_on"):
        setattr(module, name, getattr(fake, name))
    monkeypatch.setitem(sys.modules, "nhwc.api", module)
    monkeypatch.setattr(nhwc, "api", module, raising=False)
    return fake


@dataclass
class Ran:
    code: int
    out: str
    err: str


@pytest.fixture
def run(api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Ran]]:
    """Run the command in an empty folder: ``run("audit", "resnet18")``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    threads, before = torch.get_num_threads(), set(sys.modules)

    def command(*arguments: str) -> Ran:
        result = CliRunner().invoke(app, arguments)
        return Ran(result.exit_code, result.stdout, result.stderr)

    yield command
    torch.set_num_threads(threads)
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A user's file with callables of every sort."""
    path = tmp_path / "tiny.py"
    path.write_text(TINY)
    return path


TINY = """
import torch
from torch import nn

ready = nn.Conv2d(3, 4, 3)
number = 7

def net():
    return nn.Conv2d(3, 4, 3)

def with_one():
    return net(), torch.zeros(2, 3, 8, 8)

def needs_no_memory():
    made = net()
    assert made.weight.is_meta, "the weight holds memory"
    return made, torch.zeros(2, 3, 8, 8)

def with_tuple():
    return net(), (torch.zeros(2, 3, 8, 8), 5)

def with_list():
    return net(), [torch.zeros(3, 8, 8), torch.zeros(3, 8, 8)]

def with_keywords():
    return net(), {"x": torch.zeros(2, 3, 8, 8)}

def too_many():
    return net(), torch.zeros(1), torch.zeros(1)

def needs(classes):
    return net()

def text():
    return "a model"

def nothing():
    pass

def empty():
    return net(), torch.zeros(0, 3, 8, 8)

def raises():
    raise ValueError("no\\n  weights here")

def leaves():
    raise SystemExit(3)

class Holder:
    @staticmethod
    def build():
        return net()
"""
