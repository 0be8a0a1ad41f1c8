"""Panels: how columns are cut, and where each weight lies."""

from __future__ import annotations

import pytest
import torch

from nhwc.inference.steps.packing import MOST_VECTORS, Panels, lanes, packed, padded_bias


@pytest.mark.parametrize("columns", [1, 15, 16, 17, 64, 150, 1000])
@pytest.mark.parametrize("vectors", range(1, MOST_VECTORS + 1))
def test_panels_cover_the_columns_and_differ_by_one_vector(columns: int, vectors: int) -> None:
    panels = Panels(columns, vectors)
    widths = [width for count, width in panels.parts for _ in range(count)]
    assert len(widths) == panels.count
    assert sum(widths) == panels.padded == -(-columns // lanes()) * lanes()
    assert max(widths) - min(widths) in {0, lanes()}
    assert max(widths) <= vectors * lanes()


def test_each_weight_lies_in_its_panel() -> None:
    columns, depth = 5 * lanes() - 3, 7
    matrices = torch.arange(2.0 * depth * columns).view(2, depth, columns) + 1
    room = packed(matrices, 2, zeros=9)
    assert not room[-9:].any()
    place = 0
    for group in range(2):
        for first, width in ((0, 2 * lanes()), (2 * lanes(), 2 * lanes()), (4 * lanes(), lanes())):
            panel = room[place : place + depth * width].view(depth, width)
            there = min(width, columns - first)
            assert panel[:, :there].equal(matrices[group, :, first : first + there])
            assert not panel[:, there:].any()
            place += depth * width
    assert place + 9 == room.numel()


def test_a_bias_can_be_read_a_vector_beyond_its_end() -> None:
    padded = padded_bias(torch.ones(5))
    assert padded is not None
    assert padded.sum() == 5
    assert padded.numel() == 5 + lanes()
    assert padded_bias(None) is None
