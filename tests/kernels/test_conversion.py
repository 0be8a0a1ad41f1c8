"""The conversion itself: every dtype, shape and direction to the bit, as an operator and in the calls of torch."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from kernels.conformance import canonical, is_canonical
from torch.autograd import gradcheck, gradgradcheck

import nhwc

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.uint8, torch.int64, torch.bool, torch.complex64)
SHAPES = (
    (2, 3, 17, 19),
    (1, 64, 33, 31),
    (3, 40, 8, 9),
    (1, 2, 300, 5),
    (2, 4, 65, 3),
    (2, 5, 3, 30, 30),
    (1, 130, 7, 9),
)


def filled(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.randint(0, 100, shape).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_there_and_back_moves_every_element_to_its_place(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    plain = filled(shape, dtype)
    last = nhwc.to_format(plain, "channels_last" if plain.dim() == 4 else "channels_last_3d")
    assert is_canonical(last)
    assert torch.equal(last, plain)
    back = nhwc.to_format(last, "contiguous")
    assert back.is_contiguous()
    assert torch.equal(back, plain)


#: Eight megabytes and more are streamed: in whole lines (16 channels and pixels each), or put together first.
LARGE = ((2, 64, 160, 128), (3, 100, 90, 91), (1, 1030, 49, 50), (2, 3, 1024, 512), (1, 96, 16, 40, 41))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.uint8], ids=str)
@pytest.mark.parametrize("shape", LARGE, ids=str)
def test_large_ones_on_any_number_of_threads(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    plain = torch.randint(0, 256, (*shape, dtype.itemsize), dtype=torch.uint8)
    if dtype.is_floating_point:  # every bit pattern may occur in a copy, but a NaN equals nothing
        plain[..., -1] &= 0x3F
    plain = plain.view(dtype).squeeze(-1)
    before = torch.get_num_threads()
    try:
        for threads in (1, before + 1):
            torch.set_num_threads(threads)
            last = nhwc.to_format(plain, "channels_last" if plain.dim() == 4 else "channels_last_3d")
            assert torch.equal(last, plain)
            assert torch.equal(nhwc.to_format(last, "contiguous"), plain)
    finally:
        torch.set_num_threads(before)


@given(
    st.lists(st.integers(1, 40), min_size=4, max_size=4),
    st.sampled_from((torch.uint8, torch.float16, torch.float32, torch.float64)),
)
def test_any_shape(shape: list[int], dtype: torch.dtype) -> None:
    plain = filled(tuple(shape), dtype)
    last = nhwc.to_format(plain, "channels_last")
    assert torch.equal(last, plain)
    assert torch.equal(nhwc.to_format(last, "contiguous"), plain)


def test_gradients_pass_through() -> None:
    x = torch.randn(2, 3, 4, 5, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda x: nhwc.to_format(x, "channels_last"), x)
    assert gradgradcheck(lambda x: nhwc.to_format(x, "channels_last") ** 2, x)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_way_to_convert_takes_it(shape: tuple[int, ...]) -> None:
    plain = torch.randn(shape)
    last = canonical(plain)
    wanted = torch.channels_last if plain.dim() == 4 else torch.channels_last_3d
    with nhwc.kernels.use("conversion"):
        found = plain.contiguous(memory_format=wanted)
        assert is_canonical(found)
        assert torch.equal(found, plain)
        assert torch.equal(last.contiguous(), plain)
        assert torch.equal(last.flatten(1), plain.flatten(1))
        assert torch.equal(last.clone(memory_format=torch.contiguous_format), plain)


def test_gradients_pass_through_the_calls_of_torch() -> None:
    x = torch.randn(2, 8, 20, 20, dtype=torch.float64, requires_grad=True)
    with nhwc.kernels.use("conversion"):
        last = x.contiguous(memory_format=torch.channels_last)
        last.square().sum().backward()
    assert torch.equal(x.grad, 2 * x)


def test_other_copies_are_torchs() -> None:
    wide = torch.randn(2, 8, 40, 40)
    with nhwc.kernels.use("conversion"):
        assert torch.equal(wide.to(torch.float64, memory_format=torch.channels_last), wide.double())
        assert torch.equal(wide[:, ::2].contiguous(memory_format=torch.channels_last), wide[:, ::2])
        assert torch.equal(wide[:, :1].expand_as(wide).contiguous(), wide[:, :1].expand_as(wide))
        assert canonical(wide).clone().is_contiguous(memory_format=torch.channels_last)
        twisted = torch.randn(2, 8, 40, 40, dtype=torch.complex64)
        lazy = canonical(twisted).conj()
        assert torch.equal(lazy.contiguous(), twisted.conj())


def test_compiled_code_converts_too() -> None:
    x = torch.randn(2, 3, 8, 8)
    found = torch.compile(lambda x: nhwc.to_format(x, "channels_last") + 1, backend="eager", fullgraph=False)(x)
    assert torch.equal(found, x + 1)
