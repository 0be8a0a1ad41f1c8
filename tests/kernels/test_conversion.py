"""The conversion itself: every dtype, shape and direction to the bit, as an operator and under ``copy_``."""

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
def test_copy_takes_it_in_both_directions(shape: tuple[int, ...]) -> None:
    plain = torch.randn(shape)
    with nhwc.kernels.use("conversion"):
        last = canonical(plain)
        assert torch.equal(last, plain)
        assert torch.equal(last.contiguous(), plain)
        assert torch.equal(last.flatten(1), plain.flatten(1))


@pytest.mark.parametrize("number", [0.1, 3, True, 1.5 + 2j])
def test_a_number_is_copied_to_the_last_digit(number: complex) -> None:
    dtype = torch.complex128 if isinstance(number, complex) else torch.float64
    expected = torch.zeros(2, dtype=dtype).copy_(number)  # type: ignore[arg-type]
    with nhwc.kernels.use("conversion"):
        assert torch.equal(torch.zeros(2, dtype=dtype).copy_(number), expected)  # type: ignore[arg-type]


def test_other_copies_are_torchs() -> None:
    wide = torch.randn(2, 8, 40, 40)
    with nhwc.kernels.use("conversion"):
        target = canonical(torch.zeros(2, 8, 40, 40))
        target.copy_(wide.double())
        assert torch.equal(target, wide)
        target.copy_(wide[:, :1])
        assert torch.equal(target, wide[:, :1].expand_as(wide))
        half = canonical(torch.zeros(2, 4, 40, 40))
        half.copy_(wide[:, ::2])
        assert torch.equal(half, wide[:, ::2])
        twisted = torch.randn(2, 8, 40, 40, dtype=torch.complex64)
        lazy = canonical(twisted).conj()
        assert torch.equal(lazy.contiguous(), twisted.conj())


def test_a_tensor_is_not_copied_over_itself() -> None:
    storage = torch.randn(2 * 8 * 40 * 40)
    plain = storage.view(2, 8, 40, 40)
    other = storage.as_strided((2, 8, 40, 40), canonical(plain).stride())
    expected = plain.clone()
    with nhwc.kernels.use("conversion"):
        result = other.clone().copy_(plain)
    assert torch.equal(result, expected)


def test_compiled_code_converts_too() -> None:
    x = torch.randn(2, 3, 8, 8)
    found = torch.compile(lambda x: nhwc.to_format(x, "channels_last") + 1, backend="eager", fullgraph=False)(x)
    assert torch.equal(found, x + 1)
