"""Which parts of a model are sharded by themselves."""

from __future__ import annotations

import pytest
from torch import nn

from nhwc.distributed import blocks
from nhwc.distributed.blocks import chosen_blocks, usual_blocks
from nhwc.errors import DistributedError


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "SMALLEST", 10)


def names(model: nn.Module, found: list[nn.Module]) -> list[str]:
    paths = {id(module): path for path, module in model.named_modules()}
    return [paths[id(module)] for module in found]


class Own(nn.Sequential):
    def forward(self, x: object) -> object:
        return x


def test_children_of_containers_as_far_as_they_are_large_enough() -> None:
    model = nn.ModuleDict(
        {
            "stem": nn.Linear(3, 3),
            "small": nn.Linear(1, 1),
            "stage": nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Sequential(nn.Linear(4, 4))),
            "list": nn.ModuleList([nn.Linear(3, 3)]),
            "own": Own(nn.Linear(3, 3)),
        }
    )
    assert names(model, usual_blocks(model)) == ["stem", "stage.0", "stage.2.0", "list.0", "own"]


def test_parts_that_share_a_parameter_stay_with_the_model() -> None:
    first, second, third = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)
    third.weight = first.weight
    model = nn.Sequential(first, second, third)
    assert names(model, usual_blocks(model)) == ["1"]
    twice = nn.Sequential(first, nn.ReLU(), first, second)
    assert names(twice, usual_blocks(nn.Sequential(first, first, second))) == ["0", "3"]


def test_chosen_ones_come_inner_first() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), nn.Linear(2, 2))
    assert names(model, chosen_blocks(model, ["0", nn.Linear, model[1]])) == ["1", "0.0", "0"]
    assert chosen_blocks(model, []) == []


@pytest.mark.parametrize("wrong", ["2", nn.Conv2d, nn.Linear(2, 2), ""])
def test_what_is_no_part(wrong: object) -> None:
    with pytest.raises(DistributedError, match=r"is no part of this Sequential; see named_modules\(\)"):
        chosen_blocks(nn.Sequential(nn.Linear(2, 2)), [wrong])
