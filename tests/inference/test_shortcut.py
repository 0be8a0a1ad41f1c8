"""The short way of calls: taken where it may be, and right where it may not."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import nhwc
from nhwc.errors import EngineError
from nhwc.inference.module import Engine
from nhwc.inference.run import Runner


class Two(nn.Module):
    """Two tensors in, two out, nested."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 5, 3)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
        return {"sum": self.layer(x) + self.layer(y), "rest": (torch.relu(self.layer(x)),)}


def small() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.Conv2d(5, 4, 1)).eval()


def on_the_short_way(model: nn.Module, x: torch.Tensor, **more: Any) -> Engine:
    """An engine whose next call with ``x`` is not the first."""
    fast: Engine = nhwc.engine(model, x, **more)
    for _ in range(2):
        fast(x)
    return fast


def refuse(*_: object) -> None:
    raise AssertionError("the long way was taken")


def test_the_second_call_goes_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(2, 3, 9, 9)
    model = small()
    fast = nhwc.engine(model, x)
    fast(x)
    monkeypatch.setattr(Runner, "__call__", refuse)
    found = fast(2 * x)
    torch.testing.assert_close(found, model(2 * x))
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert not found.requires_grad
    with pytest.raises(AssertionError, match="long way"):
        fast(x.to(memory_format=torch.channels_last))


def test_several_tensors_nested(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model, x, y = Two().eval(), torch.randn(1, 3, 8, 8), torch.randn(1, 3, 8, 8)
    fast = nhwc.engine(model, x, y)
    fast(x, y)
    monkeypatch.setattr(Runner, "__call__", refuse)
    torch.testing.assert_close(fast(y, x), model(y, x))


@pytest.fixture(autouse=True)
def _nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NHWC_CACHE", "0")


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.to(memory_format=torch.channels_last),
        lambda x: x[:, :, ::2, 1:],
        torch._neg_view,
        lambda x: nn.Parameter(x, requires_grad=False),
        lambda x: torch.cat([x, x]),
    ],
)
def test_other_tensors_after_it(change: Any) -> None:
    x = torch.randn(2, 3, 10, 10)
    model = small()
    fast = on_the_short_way(model, x, shapes=[[torch.randn(4, 3, 10, 10)], [torch.randn(2, 3, 5, 9)]])
    other = change(x)
    torch.testing.assert_close(fast(other), model(other))
    torch.testing.assert_close(fast(x), model(x))


def test_gradients_are_refused_after_it() -> None:
    x = torch.randn(1, 3, 9, 9)
    fast = on_the_short_way(small(), x)
    with pytest.raises(EngineError, match="no gradients"):
        fast(x.clone().requires_grad_())


def test_new_weights_after_it() -> None:
    x = torch.randn(1, 3, 9, 9)
    model = small()
    fast = on_the_short_way(model, x)
    other = copy.deepcopy(model)
    with torch.no_grad():
        other[0].weight.add_(1.0)
    fast.refresh(other)
    for _ in range(2):
        torch.testing.assert_close(fast(x), other(x))


def test_another_number_of_threads_after_it() -> None:
    x = torch.randn(1, 3, 9, 9)
    model = small()
    fast = on_the_short_way(model, x)
    before = torch.get_num_threads()
    try:
        for threads in (1, 3, before):
            torch.set_num_threads(threads)
            for _ in range(2):
                torch.testing.assert_close(fast(x), model(x))
    finally:
        torch.set_num_threads(before)
