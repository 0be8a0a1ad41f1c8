"""Engines of modules drawn at random against float64: results, shapes, dtypes, and inputs that stay as they were."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from inference.random_graphs import RandomGraph
from torch import Tensor

from nhwc.errors import EngineError
from nhwc.inference.building import relative_error
from nhwc.inference.choosing import Choice, Chooser
from nhwc.inference.measurements import Measurements
from nhwc.inference.module import Engine
from nhwc.inference.specialization import Specialization
from nhwc.inference.steps.registry import Candidate, Request

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths:UserWarning")

_EPS = torch.finfo(torch.float32).eps


class AnyOf(Chooser):
    """Takes any candidate, so that all algorithms meet all surroundings."""

    def __init__(self, r: random.Random) -> None:
        super().__init__(Measurements("a test", None), 0.0)
        self._r = r

    def choose(self, request: Request, found: Sequence[Candidate], table: Any, refill: Callable[[], None]) -> Choice:
        chosen = self._r.choice(found)
        return Choice(chosen.label, chosen.build(), {}, request.exact)


def compare(seed: int) -> bool:
    """Whether the graph of a seed could be built; fails where its engine is wrong."""
    r = random.Random(seed)
    graph = RandomGraph(seed, r.choice((3, 6, 12)))
    exact = r.random() < 0.5
    try:
        made = Specialization(graph, graph.example, {}, AnyOf(r), exact, lambda *_: None)
    except EngineError as error:
        if "shares with its input" not in str(error):  # what contiguous() gave back as it was, changed in place
            raise
        return False
    made.ready(torch.get_num_threads())
    inputs = [each + 0.3 * torch.randn_like(each) for each in graph.example]
    with torch.no_grad():
        ours = Engine(graph, [made])(*[_lying_otherwise(r, each) for each in inputs])
        eager = graph(*copy.deepcopy(inputs))
        truth = graph.double()(*[each.double() for each in inputs])
    assert len(ours) == len(eager)
    for place, (one, other, best) in enumerate(zip(ours, eager, truth, strict=True)):
        told = f"seed {seed}, output {place} of:\n" + "\n".join(graph.told)
        if not isinstance(other, Tensor):
            assert one == other, told
            continue
        assert (one.shape, one.dtype) == (other.shape, other.dtype), told
        bound = 4 * max(relative_error(other, best), 16 * _EPS) * (1 if exact else 8)  # Winograd is not settled here
        assert relative_error(one, best) <= bound, told
    return True


def _lying_otherwise(r: random.Random, x: Tensor) -> Tensor:
    """The same values in other strides."""
    order = r.sample(range(x.dim()), x.dim())
    back = [order.index(dim) for dim in range(x.dim())]
    return r.choice([x.clone(), torch.stack([x, x], -1)[..., 0], x.permute(order).contiguous().permute(back)])


def test_some_graphs() -> None:
    assert sum(compare(seed) for seed in range(9100, 9125)) > 15


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_many_graphs(block: int) -> None:
    assert sum(compare(seed) for seed in range(40 * block, 40 * block + 40)) > 25
