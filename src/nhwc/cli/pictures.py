"""Pictures on disk → RGB pictures in memory, whatever way they were stored."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from nhwc.cli.exits import one_line
from nhwc.errors import TargetError

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = frozenset(".bmp .gif .jpeg .jpg .pgm .png .ppm .tif .tiff .webp".split())
_SIXTEEN_BIT_MAX = 65535


def find_pictures(where: Path) -> list[Path]:
    """The picture files in a folder and below it, in the order of their paths; or the one file that ``where`` is.

    Hidden files and folders are passed over. Raises TargetError where there is nothing to read.
    """
    if where.is_file():
        return [where]
    if not where.is_dir():
        raise TargetError(f"--images {where}: no such folder or picture")
    found = sorted(
        path
        for path in where.rglob("*")
        if path.suffix.lower() in SUFFIXES
        and path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(where).parts)
    )
    if not found:
        raise TargetError(f"--images {where}: no picture in it (looked for {' '.join(sorted(SUFFIXES))})")
    return found


def read_picture(path: Path) -> Image:
    """One picture as 8-bit RGB, turned upright as its EXIF tag says; the first frame where there are several.

    Gray, palette, CMYK and 1-bit pictures become RGB, 16-bit gray is scaled to 8 bits (not clipped), and what is
    transparent is laid on white. Raises TargetError where the file cannot be read.
    """
    from PIL import Image, ImageOps

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as opened:
                opened.load()
                upright = ImageOps.exif_transpose(opened)
            return _as_rgb(upright, path)
    except TargetError:
        raise
    except Exception as error:  # decoders raise whatever they like on damaged files
        reason = one_line(error).replace(f" {str(path)!r}", "").replace(str(path), "the file").rstrip(".")
        raise TargetError(f"cannot read the picture {path}: {reason or type(error).__name__}") from error


def _as_rgb(picture: Image, path: Path) -> Image:
    from PIL import Image

    if picture.mode == "F":
        raise TargetError(f"cannot read the picture {path}: its pixels are floats of unknown range; save it as 8-bit")
    if picture.mode.startswith("I"):
        return _from_sixteen_bits(picture, path)
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        white = Image.new("RGBA", picture.size, "white")
        return Image.alpha_composite(white, picture).convert("RGB")
    return picture.convert("RGB")


def _from_sixteen_bits(picture: Image, path: Path) -> Image:
    import numpy as np
    from PIL import Image

    values = np.asarray(picture).astype(np.int64)
    if values.min(initial=0) < 0 or values.max(initial=0) > _SIXTEEN_BIT_MAX:
        raise TargetError(f"cannot read the picture {path}: its values do not fit 16 bits; save it as 8-bit")
    return Image.fromarray(((values * 255 + _SIXTEEN_BIT_MAX // 2) // _SIXTEEN_BIT_MAX).astype(np.uint8)).convert("RGB")


def pan(picture: Image, frames: int) -> list[Image]:
    """A clip made of one picture: a window of four fifths of its width and height, moved corner to corner.

    A stand-in where no video is at hand: real textures and real motion of a camera, no moving things.
    """
    width, height = max(1, picture.width * 4 // 5), max(1, picture.height * 4 // 5)
    last = max(1, frames - 1)
    corners = [((picture.width - width) * i // last, (picture.height - height) * i // last) for i in range(frames)]
    return [picture.crop((left, top, left + width, top + height)) for left, top in corners]
