"""Orders of dimensions, places and their views."""

import pytest
import torch

from nhwc.inference.graph import View
from nhwc.inference.layout import (
    Buffer,
    Memory,
    Place,
    default_order,
    is_dense,
    order_of,
    strides_in,
    with_axis_innermost,
)


def place(shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> Place:
    return Place(Buffer(Memory.ARENA, 10_000), offset, shape, strides)


def test_pictures_lie_in_channels_last() -> None:
    picture = torch.empty(2, 3, 4, 5, memory_format=torch.channels_last)
    assert strides_in(default_order(4), (2, 3, 4, 5)) == picture.stride()
    volume = torch.empty(2, 3, 4, 5, 6, memory_format=torch.channels_last_3d)
    assert strides_in(default_order(5), (2, 3, 4, 5, 6)) == volume.stride()
    assert strides_in(default_order(3), (2, 3, 4)) == (12, 4, 1)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 3, 1), (3, 1, 0, 2), (1, 0, 3, 2)])
def test_the_order_is_read_from_strides(order: tuple[int, ...]) -> None:
    shape = (2, 3, 4, 5)
    assert order_of(shape, strides_in(order, shape)) == order


def test_sizes_of_one_leave_the_order_to_the_default() -> None:
    assert order_of((1, 8, 1, 1), (8, 1, 1, 1)) == (0, 2, 3, 1)
    assert order_of((1, 8, 1, 1), (8, 1, 8, 8)) == (0, 2, 3, 1)


def test_density_counts_every_element_once() -> None:
    assert is_dense((2, 3, 4), (12, 1, 3))
    assert not is_dense((2, 3, 4), (24, 1, 6))
    assert not is_dense((2, 3), (0, 1))


def test_a_view_is_arithmetic_on_strides() -> None:
    seen = place((2, 6, 4, 4), (96, 1, 24, 6), 5).through(View(lambda each: each[:, 2:4], "slice"))
    assert seen is not None
    assert (seen.offset, seen.shape, seen.strides) == (7, (2, 2, 4, 4), (96, 1, 24, 6))


def test_a_view_that_needs_a_copy_is_none() -> None:
    assert place((2, 6, 4, 4), (96, 1, 24, 6)).through(View(lambda each: each.view(2, 96), "reshape")) is None


def test_an_axis_goes_to_the_end() -> None:
    assert with_axis_innermost((0, 2, 3, 1), 3) == (0, 2, 1, 3)
