"""Pixels of four bytes to pixels of three: every number of them, and more than one thread takes."""

from __future__ import annotations

import pytest
import torch

from nhwc.kernels import native

pack_pixels = native.Function("pack_pixels", "ppl")


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("pixels", [*range(1, 20), 1000, 262_147])
def test_three_of_four_bytes_remain(pixels: int, threads: int) -> None:
    wide = torch.randint(0, 256, (pixels, 4), dtype=torch.uint8)
    found = torch.empty(pixels, 3, dtype=torch.uint8)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        pack_pixels(wide, found, pixels)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found, wide[:, :3])
