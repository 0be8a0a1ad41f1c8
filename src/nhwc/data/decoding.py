"""Picture files → RGB pictures in memory, upright, as views of the rows that the decoder wrote."""

from __future__ import annotations

import io
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from nhwc.data.arrow import memory_of
from nhwc.errors import DataError, UnreadableImageError
from nhwc.kernels import native

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile

#: (pixels of four bytes, pixels of three, how many).
_pack_pixels = native.Function("pack_pixels", "ppl")

#: Raw modes of PNG, and what Pillow makes of a sample in them.
_DEPTHS: dict[str, Callable[[int], int]] = {
    "L;2": lambda sample: sample * 85,
    "L;4": lambda sample: sample * 17,
    "RGB;16B": lambda sample: sample >> 8,
}

_ORIENTATION = 0x0112
_SIXTEEN_BIT_MAX = 65535
#: Orientations of EXIF in which width and height change places.
_QUARTER_TURNS = frozenset({5, 6, 7, 8})
#: Formats of Pillow whose decoder can leave out pixels; MPO is JPEG with more pictures behind it.
_SCALED_BY_DECODER = frozenset({"JPEG", "MPO"})


def decode(source: str | Path | bytes, *, at_least: tuple[int, int] | None = None) -> torch.Tensor:
    """One picture as 8-bit RGB: uint8 of shape (3, H, W), a view of H, W, 3 memory.

    source: a file, or the bytes of one, in any format that Pillow reads; of several frames the first.
    at_least: (height, width) that are enough. A larger JPEG is then decoded to a half, a quarter or an eighth of its
        size, at most so small that it still has them: much less work, and a picture scaled by averages.

    It is turned upright as its EXIF tag says. Gray, palette, CMYK and 1-bit pictures become RGB, 16-bit gray is scaled
    to 8 bits (not clipped), what is transparent is laid on white; colour profiles are not applied.

    Raises UnreadableImageError for a file that is missing, empty, truncated or no picture, DataError without Pillow.
    """
    name = f"of {len(source)} bytes" if isinstance(source, bytes) else str(source)
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise DataError("reading pictures needs Pillow; install it with: pip install 'nhwc[vision]'") from error
    if isinstance(source, bytes) and not source:
        raise UnreadableImageError(name, "it is empty")
    if not isinstance(source, bytes):
        _require_regular(Path(source), name)
    try:
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source) as opened:
            if at_least is not None and opened.format in _SCALED_BY_DECODER:
                height, width = at_least[::-1] if _orientation(opened) in _QUARTER_TURNS else at_least
                opened.draft(None, (width, height))
            _scale_transparency(opened)
            opened.load()  # before its EXIF is asked for, where PNG would load it, and a fault there counts for less
            return turned(pixels_of(opened), _orientation(opened))
    except UnidentifiedImageError as error:
        raise UnreadableImageError(name, _not_a_picture(source)) from error
    except Exception as error:  # decoders raise whatever they like on damaged files
        reason = " ".join(str(error).split()).replace(f" {name!r}", "").replace(name, "the file").rstrip(".: ")
        raise UnreadableImageError(name, reason or type(error).__name__) from error


def _scale_transparency(picture: ImageFile) -> None:
    """Give the transparent colour of a PNG, which Pillow leaves as it is in the file, the depth of the pixels."""
    if picture.format != "PNG" or "transparency" not in picture.info or not picture.tile:
        return
    scale, colour = _DEPTHS.get(str(picture.tile[0][3])), picture.info["transparency"]
    if scale is not None:
        picture.info["transparency"] = tuple(map(scale, colour)) if isinstance(colour, tuple) else scale(colour)


def _require_regular(path: Path, name: str) -> None:
    """A pipe would be waited for, a device read without end."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):  # opening it says what is wrong, in the usual words
        return
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise UnreadableImageError(name, "it is no regular file but a pipe, a socket or a device")


def _not_a_picture(source: str | Path | bytes) -> str:
    empty = not isinstance(source, bytes) and Path(source).stat().st_size == 0
    return "it is empty" if empty else "it is not a picture in a format that Pillow reads"


def _orientation(picture: Image) -> int:
    try:
        found = picture.getexif().get(_ORIENTATION, 1)
    except Exception:  # noqa: BLE001 a picture with damaged EXIF is a picture still
        return 1
    return found if isinstance(found, int) else 1


def turned(picture: torch.Tensor, orientation: int) -> torch.Tensor:
    """``picture`` (C, H, W) turned and mirrored as the EXIF ``orientation`` (1 to 8) says, H, W, C in memory again."""
    if not 2 <= orientation <= 8:
        return picture
    rows = picture.permute(1, 2, 0)
    if orientation in _QUARTER_TURNS:
        rows = rows.transpose(0, 1)
    flips = {2: (1,), 3: (0, 1), 4: (0,), 6: (1,), 7: (0, 1), 8: (0,)}.get(orientation, ())
    return (rows.flip(flips) if flips else rows).contiguous().permute(2, 0, 1)


def pixels_of(picture: Image) -> torch.Tensor:
    """A picture of Pillow in any mode as RGB: uint8 (3, H, W), a view of H, W, 3 memory of its own.

    Raises ValueError for pixels whose range is unknown.
    """
    if picture.mode.startswith("I"):
        gray = _scaled(picture)
        return gray[..., None].expand(*gray.shape, 3).contiguous().permute(2, 0, 1)
    return rows_of(_as_rgb(picture))


def rows_of(picture: Image) -> torch.Tensor:
    """The bytes of a loaded picture of Pillow, "RGB" or "L": uint8 (C, H, W), a view of H, W, C memory of its own."""
    shape = (picture.height, picture.width, len(picture.getbands()))
    wide = memory_of(picture, 4) if picture.mode == "RGB" and native.is_available() else None
    if wide is None:
        return torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8).view(shape).permute(2, 0, 1)
    rows = torch.empty(shape, dtype=torch.uint8, device="cpu")
    _pack_pixels(wide, rows, len(wide))
    return rows.permute(2, 0, 1)


def _as_rgb(picture: Image) -> Image:
    from PIL import Image

    if picture.mode == "RGB" and "transparency" not in picture.info:
        return picture
    if picture.mode == "F":
        raise ValueError("its pixels are floats of unknown range; save it as 8-bit")
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        white = Image.new("RGBA", picture.size, "white")
        return Image.alpha_composite(white, picture).convert("RGB")
    return picture.convert("RGB")


def _scaled(picture: Image) -> torch.Tensor:
    """16-bit gray as 8-bit gray, (H, W); the value that counts as transparent becomes white."""
    wide = picture.convert("I")
    values = torch.frombuffer(bytearray(wide.tobytes()), dtype=torch.int32).view(wide.height, wide.width)
    if int(values.min()) < 0 or int(values.max()) > _SIXTEEN_BIT_MAX:
        raise ValueError("its values do not fit 16 bits; save it as 8-bit")
    scaled = (values.to(torch.int64) * 255 + _SIXTEEN_BIT_MAX // 2) // _SIXTEEN_BIT_MAX
    transparent = picture.info.get("transparency")
    if isinstance(transparent, int):
        scaled = scaled.masked_fill(values == transparent, 255)
    return scaled.to(torch.uint8)
