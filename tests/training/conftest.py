"""Small real data, made of photographs that scikit-image ships."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest
import skimage.data
from PIL import Image


@pytest.fixture(scope="session")
def faces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures of 25 x 25, of faces (1) and of other things (0): 160 to train on, 40 to test."""
    pictures = (skimage.data.lfw_subset() * 255).round().astype("uint8")[..., None]
    labels = numpy.repeat([1, 0], 100)
    order = numpy.random.default_rng(0).permutation(200)
    pictures, labels = pictures[order], labels[order]
    path = tmp_path_factory.mktemp("faces") / "faces.npz"
    numpy.savez(path, x_train=pictures[:160], y_train=labels[:160], x_test=pictures[160:], y_test=labels[160:])
    return path


@pytest.fixture(scope="session")
def textures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Patches of 64 x 64 of three surfaces, as train/ and val/ with a folder for each: 32 and 16 of a kind."""
    root = tmp_path_factory.mktemp("textures")
    for name in ("brick", "grass", "gravel"):
        whole = getattr(skimage.data, name)()
        patches = [whole[top : top + 64, left : left + 64] for top in range(0, 512, 64) for left in range(0, 384, 64)]
        for number, patch in enumerate(patches):
            folder = root / ("train" if number % 3 else "val") / name
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(patch).save(folder / f"{number:02}.png")
    return root
