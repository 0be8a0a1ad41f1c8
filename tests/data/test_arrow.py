"""The memory of Pillow's pictures, read where it lies."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch
from PIL import Image

from nhwc.data.arrow import memory_of
from nhwc.data.decoding import rows_of
from nhwc.kernels import native


def picture(height: int, width: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8))


@pytest.mark.parametrize("size", [(1, 1), (1, 7), (3, 5), (64, 48), (375, 500)])
def test_the_pixels_are_those_that_pillow_gives(size: tuple[int, int]) -> None:
    made = picture(*size)
    found = memory_of(made, 4)
    assert found is not None
    assert torch.equal(found[:, :3].reshape(*size, 3), torch.from_numpy(np.array(made)))
    gray = made.convert("L")
    found = memory_of(gray, 1)
    assert found is not None
    assert torch.equal(found.view(size), torch.from_numpy(np.array(gray)))


def test_the_memory_outlives_the_picture() -> None:
    made = [picture(100, 100) for _ in range(20)]
    wanted = torch.from_numpy(np.array(made[0]))
    found = [memory_of(each, 4) for each in made]
    made.clear()
    gc.collect()
    _others = [Image.new("RGB", (100, 100), "red") for _ in range(50)]
    assert all(torch.equal(each[:, :3].reshape(100, 100, 3), wanted) for each in found)


def test_what_cannot_be_read_in_place_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    large = Image.new("RGB", (3000, 2000), (1, 2, 3))
    assert memory_of(large, 4) is None
    assert rows_of(large)[:, 1999, 2999].tolist() == [1, 2, 3]
    assert memory_of(picture(4, 5), 3) is None
    monkeypatch.delattr(Image.Image, "__arrow_c_array__")
    assert memory_of(picture(4, 5), 4) is None


@pytest.mark.parametrize("missing", ["library", "Arrow"])
def test_every_way_gives_the_same_rows(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = picture(37, 53)
    wanted = rows_of(made)
    if missing == "library":
        monkeypatch.setattr(native, "is_available", lambda: False)
    else:
        monkeypatch.delattr(Image.Image, "__arrow_c_array__")
    found = rows_of(made)
    assert torch.equal(found, wanted)
    assert found.stride() == wanted.stride() == (1, 159, 3)
    found.zero_()
    assert not torch.equal(rows_of(made), found)
