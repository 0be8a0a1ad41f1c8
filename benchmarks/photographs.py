"""A folder of photographs for the scripts that decode: crops of the pictures that scikit-image ships, by picture."""

from __future__ import annotations

import random
from pathlib import Path

import skimage
from PIL import Image

NAMES = (
    "astronaut.png",
    "chelsea.png",
    "coffee.png",
    "hubble_deep_field.jpg",
    "motorcycle_left.png",
    "retina.jpg",
    "rocket.jpg",
)


def write_folder(folder: Path, each: int, size: tuple[int, int], *, quality: int = 90, seed: int = 0) -> Path:
    """``each`` JPEG crops of every photograph, (height, width) ``size``, below ``folder``/<photograph>/; the folder.

    ImageNet's files are 500 x 375 at a quality near 90.
    """
    drawn = random.Random(seed)
    for name in NAMES:
        with Image.open(Path(skimage.__file__).parent / "data" / name) as opened:
            picture = opened.convert("RGB")
        height, width = size
        enlarged = max(1.0, 1.25 * height / picture.height, 1.25 * width / picture.width)
        picture = picture.resize((round(picture.width * enlarged), round(picture.height * enlarged)))
        place = folder / Path(name).stem
        place.mkdir(parents=True, exist_ok=True)
        for number in range(each):
            left = drawn.randint(0, picture.width - width)
            top = drawn.randint(0, picture.height - height)
            crop = picture.crop((left, top, left + width, top + height))
            crop.save(place / f"{number:04}.jpg", quality=quality)
    return folder
