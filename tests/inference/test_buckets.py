"""Batches that are filled up: what of the outputs is cut again, and what cannot be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import nhwc
from nhwc.errors import EngineError


@pytest.fixture(autouse=True)
def _nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NHWC_CACHE", "0")


class Returning(nn.Module):
    """A convolution of which ``returned`` makes the outputs."""

    def __init__(self, returned: Callable[[Any, torch.Tensor, torch.Tensor], Any]) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 3)
        self.register_buffer("numbers", torch.arange(4.0))
        self.returned = returned
        self.eval()

    def forward(self, x: torch.Tensor) -> Any:
        return self.returned(self, self.layer(x), x)


@pytest.mark.parametrize("batches", [[2], [4, 2]])
@pytest.mark.parametrize(
    ("returned", "told"),
    [
        (lambda _, y, __: (y, y.flatten(1).t()), r"output 1 .* \(36, 2\) for a batch of 2, of shape \(36, 4\)"),
        (lambda _, y, __: y.reshape(-1, 2), r"output 0 .* \(36, 2\) for a batch of 2, of shape \(72, 2\)"),
        (lambda _, y, __: y.expand(y.shape[0], *y.shape).flatten(0, 1), r"of shape \(4, .* of shape \(16, "),
        (lambda _, y, x: (y, x.shape[0]), "output 1 .* is 2 for a batch of 2, 4 for one of 4"),
        (lambda _, y, __: (y, y[y > 0]), "known only while it runs"),
    ],
    ids=["transposed", "merged", "squared", "number", "unknown"],
)
def test_an_output_that_cannot_be_cut_is_refused(returned: Any, told: str, batches: list[int]) -> None:
    with pytest.raises(EngineError, match=told):
        nhwc.engine(Returning(returned), torch.randn(4, 3, 5, 5), batches=batches, budget_s=0)


@pytest.mark.parametrize(("example", "batches"), [(4, [4]), (4, [1, 4]), (3, [4]), (4, [2])])
def test_constants_of_the_size_of_a_batch_stay_whole(example: int, batches: list[int]) -> None:
    net = Returning(lambda self, y, _: (y, self.numbers, y.shape[1]))
    engine = nhwc.engine(net, torch.randn(example, 3, 5, 5), batches=batches, budget_s=0)
    x = torch.randn(3, 3, 5, 5)
    found, numbers, channels = engine(x)
    torch.testing.assert_close(found, net.layer(x).detach())
    assert torch.equal(numbers, torch.arange(4.0))
    assert channels == 4


def test_a_batch_of_one_alone_needs_no_other() -> None:
    net = Returning(lambda _, y, __: y)
    engine = nhwc.engine(net, torch.randn(1, 3, 5, 5), batches=[1], budget_s=0)
    assert engine.contents.buckets == ()
    assert engine(torch.randn(1, 3, 5, 5)).shape == (1, 4, 3, 3)
