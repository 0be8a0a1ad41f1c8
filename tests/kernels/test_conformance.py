"""Each requirement fails on a kernel that breaks it, and passes on one that does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from kernels import conformance, requirements
from kernels.conformance import Sample, canonical

SHAPE = (2, 6, 5, 7)
Call = Callable[[torch.Tensor], torch.Tensor]


def is_last(x: torch.Tensor) -> bool:
    return x.stride() == canonical(x).stride()


def original(x: torch.Tensor) -> torch.Tensor:
    return x * x


#: By requirement: what a faulty kernel answers with in place of the square.
FAULTY: dict[str, Call] = {
    "channels last": lambda x: original(x).contiguous(),
    "accuracy": lambda x: original(x) * 1.01,
    "no copies": lambda x: original(x).clone(),
    "steps aside": lambda x: original(x).contiguous(memory_format=torch.channels_last),
    "derivatives": lambda x: x.detach() * x,
    "odd layouts": lambda x: original(x) if is_last(x) else original(x) + 1.0,
}


@contextmanager
def planted(monkeypatch: pytest.MonkeyPatch, kernel: Call) -> Iterator[Sample]:
    """A sample of the original, which ``kernel`` replaces wherever a requirement switches kernels on."""
    chosen = [original]

    @contextmanager
    def switched(_name: str) -> Iterator[None]:
        chosen.append(kernel)
        yield
        chosen.pop()

    monkeypatch.setattr(conformance, "switched", switched)
    yield Sample("planted", lambda x: chosen[-1](x), (SHAPE,))


def ask(name: str, sample: Sample) -> None:
    (parameter,) = requirements.asked("planted", [sample], name, hows=("channels_last",))
    (check,) = parameter.values
    check()


@pytest.mark.parametrize("name", requirements.REQUIREMENTS)
def test_a_requirement_is_seen_to_be_broken(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with planted(monkeypatch, FAULTY[name]) as sample, pytest.raises((AssertionError, RuntimeError)):
        ask(name, sample)


@pytest.mark.parametrize("name", requirements.REQUIREMENTS)
def test_what_keeps_to_a_requirement_passes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with planted(monkeypatch, original) as sample:
        ask(name, sample)
