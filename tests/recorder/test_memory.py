"""The recorder keeps nothing alive: activations die as in the plain step, the model and its errors after it."""

from __future__ import annotations

import contextlib
import gc
import os
import weakref
from pathlib import Path

import pytest
import torch
from recorder.conftest import TRAIN, Small
from torch import nn

from nhwc.errors import ModelError
from nhwc.recorder import Options, record

pytestmark = pytest.mark.usefixtures("few_threads", "without_gc")


def activations(x: torch.Tensor, count: int) -> list[int]:
    """How many of the tensors made so far live, each time that one more is made."""
    made: list[weakref.ref[torch.Tensor]] = []
    alive = []
    for _ in range(count):
        x = torch.sigmoid(x)
        made.append(weakref.ref(x))
        alive.append(sum(reference() is not None for reference in made))
    return alive


def test_activations_die_during_the_step_as_usual() -> None:
    alive: list[list[int]] = []
    record(lambda x: alive.append(activations(x, 6)), torch.ones(2))
    assert alive == [activations(torch.ones(2), 6)]
    assert alive[0] == [1] * 6


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_the_bytes_of_activations_are_freed_during_the_step() -> None:
    """A reserved identity must not hold the memory. Tensors of 64 MiB, which the C library gives back at once."""
    seen: list[int] = []

    def step(x: torch.Tensor) -> None:
        for _ in range(8):
            x = x + 1
            seen.append(resident_bytes())

    trace = record(step, torch.zeros(16 * 2**20))
    assert len({call.outputs[0].storage for call in trace.calls}) == 8
    assert seen[-1] - seen[0] < 2 * 64 * 2**20


@pytest.mark.parametrize("options", [Options(), TRAIN, Options(static=True), Options(inner=False, libraries=False)])
def test_model_and_activations_die_without_the_garbage_collector(options: Options) -> None:
    model, image = Small(), torch.ones(2, 3, 8, 8)
    outputs: list[weakref.ref[torch.Tensor]] = []
    model.register_forward_hook(lambda _module, _inputs, output: outputs.append(weakref.ref(output)))
    gc.collect()
    trace = record(model, image, options=options)
    assert outputs[0]() is None
    references = [weakref.ref(model), weakref.ref(model.conv.weight), weakref.ref(image)]
    del model, image
    assert [reference() for reference in references] == [None] * 3
    assert trace.calls


def test_a_training_step_and_its_optimizer_die() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.model = nn.Linear(2, 2)
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)

        def step(self, x: torch.Tensor) -> None:
            self.model(x).sum().backward()
            self.optimizer.step()

    trainer = Trainer()
    gc.collect()  # what torch's optimizers leave in cycles when they are made
    record(trainer.step, torch.ones(1, 2))
    references = [weakref.ref(trainer.model), weakref.ref(trainer.optimizer)]
    del trainer
    assert [reference() for reference in references] == [None, None]


def test_an_error_that_is_kept_lets_go_of_the_step() -> None:
    seen: list[weakref.ref[torch.Tensor]] = []

    def step(x: torch.Tensor) -> None:
        y = x + 1
        seen.append(weakref.ref(y))
        y.view(3)  # raises inside an operator

    trace = record(step, torch.ones(2), options=Options(keep_error=True))
    assert trace.error is not None
    assert trace.error.call == 1
    assert seen[0]() is None


def test_an_error_that_is_raised_lets_go_of_the_step_when_it_is_dropped() -> None:
    seen: list[weakref.ref[torch.Tensor]] = []

    def step(x: torch.Tensor) -> None:
        y = x + 1
        seen.append(weakref.ref(y))
        y.view(3)

    with contextlib.suppress(ModelError):
        record(step, torch.ones(2))
    assert seen[0]() is None
