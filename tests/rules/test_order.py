"""The order of an image's data: wider than is_contiguous, and never in conflict with it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rules.builder import FIRST, LAST, Step

from nhwc.rules.order import Order, order_of, permutes
from nhwc.strides import LayoutKind, layout, strides_for


def order(shape, strides):
    return order_of(Step().tensor(shape, strides=strides))


@pytest.mark.parametrize("rank", [4, 5])
def test_dense_images(rank: int) -> None:
    shape = (2, 8, 4, 5, 6)[:rank]
    assert order_of(Step().tensor(shape, LAST)) is Order.PIXELS
    assert order_of(Step().tensor(shape, FIRST)) is Order.PLANES


def test_channel_slice_keeps_the_order_of_what_it_was_cut_from() -> None:
    assert order((2, 4, 4, 4), strides_for((2, 8, 4, 4), LAST)) is Order.PIXELS
    assert order((2, 4, 4, 4), strides_for((2, 8, 4, 4), FIRST)) is Order.PLANES


def test_spatial_crop_keeps_the_order() -> None:
    assert order((2, 8, 2, 3), strides_for((2, 8, 4, 4), LAST)) is Order.PIXELS


def test_batch_of_one_is_read_without_its_stride() -> None:
    assert order((1, 3, 8, 8), (3, 1, 24, 3)) is Order.PIXELS


@pytest.mark.parametrize("shape", [(2, 1, 4, 4), (2, 8, 1, 1), (1, 1, 1, 1), (2, 1, 3, 4, 4)])
def test_nothing_tells_one_channel_or_one_pixel_apart(shape: tuple[int, ...]) -> None:
    assert order_of(Step().tensor(shape, LAST)) is Order.EITHER
    assert order_of(Step().tensor(shape, FIRST)) is Order.EITHER


def test_where_one_reading_tells_nothing_the_order_is_left_open() -> None:
    """A volume of one pixel could be channels split in two; so could one of one channel."""
    assert order((2, 1, 8, 4, 4), (128, 128, 16, 4, 1)) is Order.EITHER
    assert order((2, 8, 4, 1, 1), (32, 1, 8, 8, 8)) is Order.EITHER


def test_channels_split_in_two_for_a_shuffle() -> None:
    """(2, 8, 4, 4) seen as (2, groups 2, 4, 4, 4), as it is and with the groups transposed."""
    assert order((2, 2, 4, 4, 4), (128, 4, 1, 32, 8)) is Order.PIXELS
    assert order((2, 4, 2, 4, 4), (128, 1, 4, 32, 8)) is Order.PIXELS
    assert order((2, 2, 4, 4, 4), (128, 64, 16, 4, 1)) is Order.PLANES
    assert order((2, 4, 2, 4, 4), (128, 16, 64, 4, 1)) is Order.PLANES


def test_expanded_dimension_counts_as_one() -> None:
    assert order((2, 8, 4, 4), (8, 1, 0, 0)) is Order.EITHER  # the gradient of a mean over space
    assert order((2, 8, 4, 4), (0, 1, 32, 8)) is Order.PIXELS
    assert order((2, 8, 4, 4), (0, 16, 4, 1)) is Order.PLANES
    assert order((2, 8, 4, 4), (4, 4, 0, 1)) is Order.PLANES
    assert order((2, 8, 6, 2, 6), (288, 1, 48, 0, 8)) is Order.PIXELS  # repeat_interleave along H
    assert order((2, 8, 4, 4), (0, 0, 0, 0)) is Order.EITHER


@pytest.mark.parametrize(
    ("shape", "strides"),
    [
        ((2, 8, 16), (128, 1, 8)),
        ((8, 16), (16, 1)),
        ((2, 0, 4, 4), (0, 1, 0, 0)),
        ((2, 8, 4, 4), (128, 16, 1, 4)),  # W and H swapped
        ((2, 8, 4, 4), (1, 32, 8, 2)),  # the batch is not outermost
        ((2, 8, 4, 4), (128, 4, 32, 1)),  # channels between H and W
        ((2, 3, 4, 5, 6, 7), (2520, 840, 210, 42, 7, 1)),
    ],
)
def test_everything_else_is_no_image(shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    assert order(shape, strides) is Order.OTHER


def test_permutes_sees_the_order_only() -> None:
    step = Step()
    last, first = step.tensor((2, 8, 4, 4), LAST), step.tensor((2, 8, 4, 4), FIRST)
    slice_of_last = step.tensor((2, 4, 4, 4), strides=last.strides)
    assert permutes(last, first)
    assert not permutes(slice_of_last, step.tensor((2, 4, 4, 4), LAST))
    repeated = step.tensor((2, 8, 4, 2, 4), strides=(128, 16, 4, 0, 1))
    assert not permutes(repeated, step.tensor((2, 8, 4, 2, 4), FIRST))


SIZES = st.integers(1, 5)
SHAPES = st.one_of(st.tuples(SIZES, SIZES, SIZES, SIZES), st.tuples(SIZES, SIZES, SIZES, SIZES, SIZES))


@given(shape=SHAPES, data=st.data())
def test_order_agrees_with_the_layout_of_dense_tensors(shape: tuple[int, ...], data: st.DataObject) -> None:
    permutation = data.draw(st.permutations(range(len(shape))))
    strides, step = [0] * len(shape), 1
    for dim in permutation:
        strides[dim] = step
        step *= shape[dim]
    kind = layout(shape, strides).kind
    found = order(shape, tuple(strides))
    if shape[3:] == (1, 1):  # a volume of one pixel reads like channels that were split in two
        assert found in (Order.EITHER, Order.OTHER)
        return
    if kind is LayoutKind.CONTIGUOUS:
        assert found in (Order.PLANES, Order.EITHER)
        assert found is Order.PLANES or shape[1] == 1 or set(shape[2:]) == {1}
    elif kind in (LayoutKind.CHANNELS_LAST, LayoutKind.CHANNELS_LAST_3D):
        assert found is Order.PIXELS
    elif kind is LayoutKind.AMBIGUOUS:
        assert found is Order.EITHER


@given(shape=SHAPES, memory_format=st.sampled_from([LAST, FIRST]), data=st.data())
def test_slicing_never_turns_one_order_into_the_other(
    shape: tuple[int, ...], memory_format: str, data: st.DataObject
) -> None:
    whole = Step().tensor(shape, memory_format)
    smaller = tuple(data.draw(st.integers(1, size)) for size in shape)
    other = Order.PLANES if memory_format == LAST else Order.PIXELS
    assert order(smaller, whole.strides) is not other
