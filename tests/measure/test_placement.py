"""Blocks that tensors have to lie around, other ones in each round."""

import torch

from nhwc.measure.placement import Placement


def sizes(placement: Placement) -> list[int]:
    return [block.untyped_storage().nbytes() for block in placement._held]


def test_it_holds_other_blocks_after_each_change_and_only_those() -> None:
    placement = Placement(seed=0)
    assert sizes(placement) == []
    placement.change()
    first = sizes(placement)
    placement.change()
    second = sizes(placement)
    assert first != second
    assert len(first) == len(second) == 100
    assert 0 < min(first + second) <= max(first + second) <= 1_600_000


def test_equal_seeds_hold_equal_blocks() -> None:
    first, second, other = Placement(7), Placement(7), Placement(8)
    for placement in (first, second, other):
        placement.change()
    assert sizes(first) == sizes(second) != sizes(other)


def test_random_numbers_of_torch_are_left_alone() -> None:
    before = torch.default_generator.get_state()
    Placement(3).change()
    assert torch.equal(before, torch.default_generator.get_state())
