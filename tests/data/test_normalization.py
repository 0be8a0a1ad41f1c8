"""Normalising: the bits of ToTensor and Normalize, in channels last, with and without the compiled library."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torchvision import transforms

import nhwc
from nhwc.data import normalize
from nhwc.kernels import native

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def wanted(images: torch.Tensor, mean: object, std: object, dtype: torch.dtype) -> torch.Tensor:
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    means, stds = (torch.tensor(each, dtype=wide).view(1, -1, 1, 1) for each in (mean, std))
    return ((images.to(wide) / 255 - means) / stds).to(dtype)


@pytest.fixture(params=["library", "composition"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "composition":
        monkeypatch.setattr(native, "is_available", lambda: False)
    else:
        assert native.is_available(), native.status().reason
    return request.param


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "shape", [(1, 3, 1, 1), (2, 1, 5, 7), (3, 3, 16, 17), (1, 4, 9, 9), (2, 130, 6, 5), (5, 3, 0, 4)], ids=str
)
@pytest.mark.parametrize("last", [True, False], ids=["channels last", "contiguous"])
def test_every_bit_is_that_of_the_formula(way: str, shape: tuple[int, ...], dtype: torch.dtype, last: bool) -> None:
    images = torch.randint(0, 256, shape, dtype=torch.uint8)
    if last:
        images = nhwc.to_format(images, "channels_last")
    mean, std = torch.rand(shape[1]).tolist(), (torch.rand(shape[1]) + 0.1).tolist()
    before = images.clone()
    found = normalize(images, mean, std, dtype)
    assert found.dtype == dtype
    assert torch.equal(found, wanted(images, mean, std, dtype))
    assert found.stride() == nhwc.strides_for(shape, "channels_last")
    assert torch.equal(images, before)


def test_every_bit_is_that_of_torchvision(way: str) -> None:
    every = torch.arange(256, dtype=torch.uint8).view(16, 16, 1).expand(16, 16, 3).contiguous()
    usual = transforms.Compose([transforms.ToTensor(), transforms.Normalize(MEAN, STD)])
    assert torch.equal(normalize(every.permute(2, 0, 1)[None], MEAN, STD)[0], usual(every.numpy()))


@given(st.lists(st.tuples(st.floats(-2, 2), st.floats(0.01, 9)), min_size=1, max_size=40), st.sampled_from(DTYPES))
def test_any_numbers(numbers: list[tuple[float, float]], dtype: torch.dtype) -> None:
    mean, std = zip(*numbers, strict=True)
    images = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16).expand(1, len(numbers), 16, 16)
    assert torch.equal(normalize(images, mean, std, dtype), wanted(images, mean, std, dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_large_batch_that_is_streamed_on_any_number_of_threads(dtype: torch.dtype) -> None:
    images = nhwc.to_format(torch.randint(0, 256, (7, 3, 421, 513), dtype=torch.uint8), "channels_last")
    before = torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            assert torch.equal(normalize(images, MEAN, STD, dtype), wanted(images, MEAN, STD, dtype))
    finally:
        torch.set_num_threads(before)


def test_one_number_serves_all_channels(way: str) -> None:
    images = torch.randint(0, 256, (2, 3, 4, 5), dtype=torch.uint8)
    assert torch.equal(normalize(images, 0.5, 0.25), normalize(images, [0.5] * 3, [0.25] * 3))


@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
def test_floating_point_pictures_are_not_divided(way: str, layout: str) -> None:
    images = nhwc.to_format(torch.rand(2, 3, 4, 5), layout)
    before = images.clone()
    found = normalize(images, MEAN, STD)
    means, stds = (torch.tensor(each).view(1, 3, 1, 1) for each in (MEAN, STD))
    assert torch.equal(found, (images - means) / stds)
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(images, before)


def test_the_two_operators_of_other_devices_are_near() -> None:
    images = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16).expand(1, 3, 16, 16)
    for dtype in DTYPES:
        found = nhwc.data.normalization.in_two_operators(
            images,
            *nhwc.data.normalization.constants(
                MEAN, STD, 3, torch.float64 if dtype == torch.float64 else torch.float32, torch.device("cpu")
            ),
            dtype,
        )
        assert found.dtype == dtype
        torch.testing.assert_close(found, wanted(images, MEAN, STD, dtype), rtol=2 * torch.finfo(dtype).eps, atol=3e-7)


def test_it_compiles_and_traces() -> None:
    images = nhwc.to_format(torch.randint(0, 256, (2, 3, 4, 5), dtype=torch.uint8), "channels_last")
    compiled = torch.compile(lambda images: normalize(images, MEAN, STD) + 1, backend="eager")
    assert torch.equal(compiled(images), normalize(images, MEAN, STD) + 1)
    with torch._subclasses.FakeTensorMode() as mode:
        assert normalize(mode.from_tensor(images), MEAN, STD).stride() == (60, 1, 15, 3)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            (torch.zeros(3, 4, 5, dtype=torch.uint8), 0.5, 0.5),
            r"expected pictures of shape .N, C, H, W., got \(3, 4, 5\)",
        ),
        (("x", 0.5, 0.5), "got str"),
        ((torch.zeros(1, 3, 4, 5, dtype=torch.int64), 0.5, 0.5), "pictures of torch.int64: expected uint8"),
        ((torch.zeros(1, 3, 4, 5), 0.5, 0.5, torch.int32), "dtype=torch.int32: expected one of torch.float32"),
        ((torch.zeros(1, 3, 4, 5), [0.5] * 2, 0.5), "mean has 2 numbers for pictures of 3 channels"),
        ((torch.zeros(1, 3, 4, 5), 0.5, [0.5] * 4), "std has 4 numbers for pictures of 3 channels"),
        ((torch.zeros(1, 3, 4, 5), 0.5, [0.5, 0, 0.5]), "std=.*expected numbers above 0"),
        ((torch.zeros(1, 3, 4, 5), float("nan"), 0.5), "mean=.*expected finite numbers"),
    ],
)
def test_what_does_not_fit_is_refused(arguments: tuple[object, ...], said: str) -> None:
    with pytest.raises(nhwc.DataError, match=said):
        normalize(*arguments)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_floating_point_pictures_that_are_normalised_already_or_go_to_255_are_refused(dtype: torch.dtype) -> None:
    images = torch.rand(2, 3, 4, 5)
    for wrong in ((images - 0.5) / 0.25, images * 255, images * 2 - 1.2):
        with pytest.raises(
            nhwc.DataError, match=r"pictures from -?\d.* to \d.*: expected 0 to 1; hand out uint8 \(drop"
        ):
            normalize(wrong.to(dtype), MEAN, STD)
    normalize((images * 1.4 - 0.2).to(dtype), MEAN, STD)  # what a sharp filter or noise makes of a picture
    assert normalize(images[:0].to(dtype), MEAN, STD).shape == (0, 3, 4, 5)


def test_a_traced_batch_of_floating_point_is_taken_as_it_is() -> None:
    with torch._subclasses.FakeTensorMode() as mode:
        assert normalize(mode.from_tensor(torch.rand(2, 3, 4, 5)), MEAN, STD).stride() == (60, 1, 15, 3)
