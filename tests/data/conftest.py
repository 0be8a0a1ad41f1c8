"""Folders of small pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

CLASSES = ("cats", "dogs", "newts")
PER_CLASS = 6


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three classes of six pictures of noise each, no two of a size; the last two of each lie one folder deeper."""
    drawn = np.random.default_rng(0)
    for place, name in enumerate(CLASSES):
        (tmp_path / name / "more").mkdir(parents=True)
        for number in range(PER_CLASS):
            pixels = drawn.integers(0, 256, (40 + number, 50 + place, 3), dtype=np.uint8)
            where = tmp_path / name / ("more" if number > 3 else "") / f"{number}.png"
            Image.fromarray(pixels).save(where)
    return tmp_path


@pytest.fixture
def spoilt(folder: Path) -> Path:
    """The same with one picture empty, one cut off in the middle, and one that is text."""
    (folder / "cats" / "1.png").write_bytes(b"")
    whole = (folder / "dogs" / "2.png").read_bytes()
    (folder / "dogs" / "2.png").write_bytes(whole[: len(whole) // 2])
    (folder / "newts" / "0.png").write_text("not a picture")
    return folder
