"""Stride algebra, held against torch over random shapes."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from nhwc import strides
from nhwc.errors import FormatError
from nhwc.strides import LayoutKind, format_name, holds, layout, memory_order, physical_order, strides_for

FORMATS = {
    "contiguous": torch.contiguous_format,
    "channels_last": torch.channels_last,
    "channels_last_3d": torch.channels_last_3d,
}
small = st.integers(0, 4)
shapes4 = st.tuples(small, small, small, small)
shapes5 = st.tuples(small, small, small, small, small)
huge = st.integers(0, 2**13)


def formats_of(rank):
    return ("contiguous", {4: "channels_last", 5: "channels_last_3d"}[rank])


@given(shapes4 | shapes5 | st.tuples(huge, huge, huge, huge))
@example((1, 1, 1, 1))
@example((2, 0, 4, 5))
@example((0, 1, 3, 1))
@example((2**14, 2**14, 2**14, 2**14))
def test_strides_for_are_those_of_a_fresh_tensor(shape):
    for name in formats_of(len(shape)):
        fresh = torch.empty(shape, device="meta", memory_format=FORMATS[name])
        assert strides_for(shape, name) == fresh.stride()
        assert strides_for(torch.Size(shape), FORMATS[name]) == fresh.stride()


@given(st.data(), shapes4 | shapes5)
def test_holds_answers_as_is_contiguous_for_any_strides(data, shape):
    strides = tuple(data.draw(st.integers(0, 8) | st.sampled_from(strides_for(shape, "contiguous"))) for _ in shape)
    canonical = strides_for(shape, formats_of(len(shape))[1])
    mixed = tuple(data.draw(st.sampled_from((want, 7))) for want in canonical)
    for steps in (strides, canonical, mixed):
        tensor = torch.empty_strided(shape, steps, device="meta")
        for name, memory_format in FORMATS.items():
            assert holds(shape, steps, name) == tensor.is_contiguous(memory_format=memory_format), (steps, name)


@given(st.data(), st.lists(st.integers(1, 3), min_size=1, max_size=4).map(tuple))
def test_kind_agrees_with_the_offsets_that_are_visited(data, shape):
    strides = tuple(data.draw(st.integers(0, 9)) for _ in shape)
    count = int(torch.tensor(shape).prod())
    offsets = torch.arange(200).as_strided(shape, strides).flatten().tolist()
    kind = layout(shape, strides).kind
    distinct = len(set(offsets)) == count
    dense = distinct and max(offsets) == count - 1
    assert (kind is LayoutKind.OVERLAPPING) == (not distinct)
    assert (kind is LayoutKind.NOT_DENSE) == (distinct and not dense)


@pytest.mark.parametrize(
    ("shape", "strides", "kind", "canonical", "free"),
    [
        ((10, 3, 32, 32), (3072, 1024, 32, 1), "contiguous", (3072, 1024, 32, 1), ("contiguous",)),
        ((10, 3, 32, 32), (3072, 1, 96, 3), "channels_last", (3072, 1, 96, 3), ("channels_last",)),
        ((2, 3, 2, 4, 4), (96, 1, 48, 12, 3), "channels_last_3d", (96, 1, 48, 12, 3), ("channels_last_3d",)),
        ((1, 3, 8, 8), (3, 1, 24, 3), "channels_last", (192, 1, 24, 3), ("channels_last",)),
        ((8, 1, 3, 3), (9, 9, 3, 1), "ambiguous", (9, 1, 3, 1), ("contiguous", "channels_last")),
        ((8, 4, 1, 1), (4, 1, 4, 4), "ambiguous", (4, 1, 4, 4), ("contiguous", "channels_last")),
        ((1, 1, 1, 1), (1, 1, 1, 1), "ambiguous", (1, 1, 1, 1), ("contiguous", "channels_last")),
        ((0, 3, 4, 5), (60, 20, 5, 1), "contiguous", (60, 20, 5, 1), ("contiguous", "channels_last")),
        ((2, 3, 4, 4), (0, 16, 4, 1), "overlapping", (48, 16, 4, 1), ()),
        ((2, 2, 4, 4), (48, 1, 12, 3), "not_dense", (32, 16, 4, 1), ()),
        ((2, 3, 4, 4), (48, 16, 1, 4), "strided", (48, 16, 4, 1), ()),
        ((3, 2), (2, 3), "not_dense", (2, 1), ()),
        ((3, 4), (4, 1), "contiguous", (4, 1), ("contiguous",)),
    ],
)
def test_layout_reads(shape, strides, kind, canonical, free):
    found = layout(shape, strides)
    assert (found.kind.value, found.canonical, found.free) == (kind, canonical, free)
    assert found.strides == strides
    assert found.is_canonical == (strides == canonical)


def test_layout_tells_canonical_from_merely_passing():
    assert layout((8, 1, 3, 3), (9, 1, 3, 1)).is_canonical
    assert not layout((8, 1, 3, 3), (9, 9, 3, 1)).is_canonical
    assert not layout((8, 4, 1, 1), (4, 1, 1, 1)).is_canonical


def test_physical_order_of_a_slice_is_that_of_its_base():
    assert physical_order((2, 2, 4, 4), (48, 1, 12, 3)) == (0, 2, 3, 1)
    assert physical_order((1, 2, 4, 4), (48, 1, 12, 3)) == (2, 3, 1)


def test_memory_order_of_five_dimensions():
    assert memory_order(5, torch.channels_last_3d) == (0, 2, 3, 4, 1)


@pytest.mark.parametrize(
    ("shape", "memory_format", "message"),
    [
        ((3, 8, 8), "channels_last", "channels_last needs a 4-D tensor, got 3-D; use 'contiguous'"),
        ((1, 3, 2, 8, 8), torch.channels_last, "got 5-D; use 'channels_last_3d'"),
        ((1, 3, 8, 8), "channels_last_3d", "got 4-D; use 'channels_last'"),
        ((1, 3, 8, 8), torch.preserve_format, "unknown memory format torch.preserve_format"),
        ((1, -3, 8, 8), "contiguous", "negative size"),
        ((1, 3.5, 8, 8), "contiguous", "whole numbers"),
        (7, "contiguous", "whole numbers"),
    ],
)
def test_strides_for_refuses_with_the_fix(shape, memory_format, message):
    with pytest.raises(FormatError, match=message.replace("(", r"\(")):
        strides_for(shape, memory_format)


def test_layout_refuses_strides_of_another_length():
    with pytest.raises(FormatError, match="differ in length"):
        layout((2, 3), (1,))


def test_format_name_accepts_both_spellings():
    assert [format_name(f) for f in FORMATS.values()] == list(FORMATS)


def test_the_algebra_needs_no_torch():
    code = (
        "import sys; sys.modules['torch'] = None; from nhwc.strides import *; print(strides_for((2, 3), 'contiguous'))"
    )
    source = Path(strides.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=source)
    assert done.stdout.strip() == "(3, 1)", done.stderr
