"""Concatenations in place: who writes where, and what still has to be copied."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from inference.engines import assert_right, specialized
from inference.passes.test_passes import Function
from torch import nn

X = torch.randn(2, 8, 6, 5, generator=torch.Generator().manual_seed(7)).contiguous(memory_format=torch.channels_last)


def operations(model: nn.Module) -> Counter[str]:
    made = specialized(model, X)
    items = made.plans[torch.get_num_threads()].placement.items
    assert all(item.is_native for item in items)
    return Counter(type(item.work).__name__ for item in items)


def layers() -> dict[str, nn.Module]:
    torch.manual_seed(8)
    return {"a": nn.Conv2d(8, 4, 1), "b": nn.Conv2d(8, 6, 3, padding=1), "c": nn.Conv2d(10, 3, 1)}


def dense(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
    one, two = self.a(x), self.b(x)
    return torch.cat([one, two, self.c(torch.cat([one, two], 1))], 1).relu()


def nested(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return torch.cat([torch.cat([self.a(x), self.b(x)], 1), self.a(x)], 1)


def with_the_input(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
    inner = torch.cat([x, self.a(x)], 1)
    return torch.cat([x, self.a(x), self.b(inner[:, 4:])], 1)


def a_part_twice(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
    one = self.a(x)
    return torch.cat([one, one, self.b(x)], 1)


def along_rows(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return torch.cat([self.a(x), self.a(x.relu())], 2)


CASES: dict[Callable[[nn.Module, torch.Tensor], torch.Tensor], int] = {
    dense: 0,
    nested: 0,
    with_the_input: 2,
    a_part_twice: 1,
    along_rows: 0,
}


@pytest.mark.parametrize("function", CASES, ids=lambda each: each.__name__)
def test_parts_are_written_where_they_belong(function: Callable[[nn.Module, torch.Tensor], torch.Tensor]) -> None:
    model = Function(function, **layers())
    assert operations(model)["Copy"] == CASES[function]
    assert_right(model, X)
