"""The compiled normalisation, called as it is: every element type, to the bit, also where the result is streamed."""

from __future__ import annotations

import pytest
import torch

from nhwc.kernels import native

normalize = native.Function("normalize", "ippllpp")

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
#: (pixels, channels): the last is eight megabytes and more in every type.
SIZES = ((1, 1), (7, 3), (512, 3), (513, 3), (40_000, 3), (33, 50), (5, 2000), (1_500_001, 3))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_every_bit_is_that_of_the_formula(size: tuple[int, int], dtype: torch.dtype) -> None:
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    pixels = torch.randint(0, 256, size, dtype=torch.uint8)
    mean, std = torch.rand(size[1], dtype=wide), torch.rand(size[1], dtype=wide) + 0.1
    found = torch.empty(size, dtype=dtype)
    normalize(native.dtype_code(dtype), pixels, found, *size, mean, std)
    assert torch.equal(found, ((pixels.to(wide) / 255 - mean) / std).to(dtype))
