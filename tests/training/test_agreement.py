"""Ranks stop at the same step, soon after they were asked to."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from training.runs import settings

from nhwc import distributed
from nhwc.training import agreement, ranks
from nhwc.training.agreement import Agreement, steps_until_next
from nhwc.training.context import Context
from nhwc.training.stopping import Stopping, StopRequest


@pytest.mark.parametrize(("step_s", "steps"), [(31.0, 1), (2.0, 1), (0.5, 4), (0.1, 20), (0.0001, 32), (0.0, 32)])
def test_slow_steps_are_each_asked_after_fast_ones_now_and_then(step_s: float, steps: int) -> None:
    assert steps_until_next(step_s) == steps


class Others:
    """The other ranks: how slow their steps are, and whether they want to stop."""

    def __init__(self) -> None:
        self.step_s, self.asked, self.meetings = 0.5, False, 0

    def largest(self, values: Sequence[float], _device: torch.device) -> list[float]:
        self.meetings += 1
        return [max(values[0], self.asked), max(values[1], self.step_s)]


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> Others:
    made = Others()
    monkeypatch.setattr(ranks, "largest", made.largest)
    return made


def context(size: int) -> Context:
    return Context(settings(), torch.device("cpu"), distributed.World(0, 0, size), StopRequest())


def test_ranks_ask_each_other_every_few_seconds(others: Others) -> None:
    asking = Agreement(context(2))
    met = []
    for _ in range(10):
        asking.after_step()
        met.append(others.meetings)
    assert met == [1, 1, 1, 1, 2, 2, 2, 2, 3, 3]
    asking.after_step(together=True)
    assert others.meetings == 4
    others.step_s = 30.0
    for _ in range(4):
        asking.after_step()
    assert others.meetings == 5
    asking.after_step()
    assert others.meetings == 6
    others.asked = True
    with pytest.raises(Stopping):
        asking.after_step()


def test_a_rank_does_not_stop_alone(others: Others) -> None:
    here = context(2)
    asking = Agreement(here)
    asking.after_step()
    here.stop.made = True
    for _ in range(3):
        asking.after_step()
    with pytest.raises(Stopping):
        asking.after_step()


def test_one_process_stops_at_once(others: Others) -> None:
    here = context(1)
    asking = Agreement(here)
    asking.after_step()
    here.stop.made = True
    with pytest.raises(Stopping):
        asking.after_step()
    assert others.meetings == 0
    assert agreement._EVERY_S * 4 < 30  # what torchrun waits, with time to write a checkpoint
