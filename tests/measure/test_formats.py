"""The variants of a call's operands: same shape, dense, in the order that was asked for."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nhwc.measure.formats import in_one_format
from nhwc.model import TensorMeta
from nhwc.strides import CONTIGUOUS, channels_last_for, holds, layout, strides_for


def meta(shape: tuple[int, ...], strides: tuple[int, ...]) -> TensorMeta:
    return TensorMeta(shape, strides, "float32", "cpu", 0, 7, 4)


def in_format(shape: tuple[int, ...], name: str) -> TensorMeta:
    return meta(shape, strides_for(shape, name))


@st.composite
def permuted(draw: st.DrawFn, ranks: tuple[int, int] = (4, 5)) -> TensorMeta:
    """A dense tensor of rank 4 or 5 in any order of dimensions, or a slice of one."""
    shape = draw(st.lists(st.integers(1, 5), min_size=ranks[0], max_size=ranks[1]))
    order = draw(st.permutations(range(len(shape))))
    room = [draw(st.sampled_from([1, 1, 2])) for _ in shape]
    strides, step = [0] * len(shape), 1
    for dim in order:
        strides[dim] = step
        step *= shape[dim] * room[dim]
    return meta(tuple(shape), tuple(strides))


@given(permuted(), st.booleans())
def test_a_variant_has_the_shape_is_dense_and_has_the_order(operand: TensorMeta, channels_last: bool) -> None:
    variant = in_one_format(operand, channels_last=channels_last)
    assert variant.shape == operand.shape
    if variant == operand:
        return
    assert variant.offset == 0
    assert layout(variant.shape, variant.strides).kind.value not in ("not_dense", "overlapping")
    assert max((size - 1) * stride for size, stride in zip(variant.shape, variant.strides, strict=True)) < variant.numel
    big = [dim for dim in range(1, len(variant.shape)) if variant.shape[dim] > 1]
    channel = variant.strides[1]
    others = [variant.strides[dim] for dim in big if dim > 2]
    if 1 in big and others:
        assert all(channel < other for other in others) if channels_last else all(channel > other for other in others)


@given(permuted((4, 4)))
def test_both_variants_differ_only_in_the_place_of_the_channels(operand: TensorMeta) -> None:
    last, first = (in_one_format(operand, channels_last=way) for way in (True, False))
    assert in_one_format(last, channels_last=False) == first
    assert in_one_format(first, channels_last=True) == last


SHAPES = [
    (2, 3, 4, 5),
    (1, 3, 4, 5),
    (2, 8, 1, 5),
    (2, 8, 5, 1),
    (2, 3, 4, 5, 6),
    (2, 8, 1, 4, 5),
    (2, 8, 4, 1, 1),
    (1, 8, 1, 1, 3),
]


@pytest.mark.parametrize("shape", SHAPES)
def test_plain_images_get_the_strides_of_an_allocation(shape: tuple[int, ...]) -> None:
    """Kernels read a format from strides of size 1 too: only canonical ones show it."""
    name = channels_last_for(len(shape))
    assert name is not None
    for operand in (in_format(shape, name), in_format(shape, CONTIGUOUS)):
        assert in_one_format(operand, channels_last=True).strides == strides_for(shape, name)
        assert in_one_format(operand, channels_last=False).strides == strides_for(shape, CONTIGUOUS)


@pytest.mark.parametrize("channels_last", [True, False])
def test_a_shuffles_split_channels_stay_together(channels_last: bool) -> None:
    image = torch.empty(2, 6, 4, 5, memory_format=torch.channels_last)
    for split in (image.view(2, 2, 3, 4, 5), image.view(2, 2, 3, 4, 5).transpose(1, 2)):
        variant = in_one_format(meta(tuple(split.shape), split.stride()), channels_last=channels_last)
        channel, space = variant.strides[1:3], variant.strides[3:]
        assert (max(channel) < min(space)) if channels_last else (min(channel) > max(space))
        assert (channel[0] > channel[1]) == (split.stride(1) > split.stride(2))
    assert in_one_format(meta(tuple(split.shape), split.stride()), channels_last=True).strides == split.stride()


@pytest.mark.parametrize(
    "operand",
    [
        meta((4, 5), (5, 1)),
        meta((2, 3, 4), (12, 4, 1)),
        meta((2, 3, 4, 5), (3, 1, 0, 0)),
        meta((2, 0, 4, 5), (20, 20, 5, 1)),
        meta((2, 1, 4, 5), (20, 20, 5, 1)),
        meta((2, 3, 1, 1), (3, 1, 1, 1)),
        meta((1, 2, 3, 4, 5, 6), (720, 360, 120, 30, 6, 1)),
        meta((), ()),
    ],
    ids=lambda operand: str(operand.shape),
)
def test_what_has_no_format_stays(operand: TensorMeta) -> None:
    assert in_one_format(operand, channels_last=True) == operand
    assert in_one_format(operand, channels_last=False) == operand


def test_the_variants_hold_in_their_format_by_torchs_own_check() -> None:
    for shape in SHAPES:
        variant = in_one_format(in_format(shape, CONTIGUOUS), channels_last=True)
        name = channels_last_for(len(shape))
        assert name is not None
        assert holds(shape, variant.strides, name)
        tensor = torch.empty_strided(shape, variant.strides)
        assert tensor.is_contiguous(memory_format=getattr(torch, name))
        assert torch.relu(tensor).stride() == variant.strides
