"""Pictures in every way that files store them, and files that are none."""

from __future__ import annotations

import io
import pickle
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

import nhwc
from nhwc.data import decode

WHITE = [255, 255, 255]


def encoded(picture: Image.Image, kind: str = "png", **options: object) -> bytes:
    into = io.BytesIO()
    picture.save(into, kind, **options)
    return into.getvalue()


def noise(height: int, width: int, *channels: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, *channels), dtype=np.uint8)


def rows(source: bytes | Path) -> list[list[list[int]]]:
    return decode(source).permute(1, 2, 0).tolist()


def test_it_is_a_view_of_the_rows_that_the_decoder_wrote(tmp_path: Path) -> None:
    pixels = noise(5, 7, 3)
    (tmp_path / "a.png").write_bytes(encoded(Image.fromarray(pixels)))
    for source in (tmp_path / "a.png", str(tmp_path / "a.png"), (tmp_path / "a.png").read_bytes()):
        read = decode(source)
        assert read.shape == (3, 5, 7)
        assert read.stride() == (1, 21, 3)
        assert np.array_equal(read.permute(1, 2, 0).numpy(), pixels)
        read.zero_()  # memory of its own, to be written to


def test_gray_and_one_bit_have_three_equal_channels() -> None:
    assert rows(encoded(Image.new("L", (2, 1), 90))) == [[[90] * 3] * 2]
    assert rows(encoded(Image.new("1", (1, 2), 1))) == [[WHITE], [WHITE]]


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["png", "jpeg"])
def test_exif_turns_the_picture_upright(orientation: int, kind: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = encoded(Image.fromarray(noise(5, 8, 3)), kind, exif=exif)
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(content)))
    read = decode(content)
    assert np.array_equal(read.permute(1, 2, 0).numpy(), np.asarray(upright))
    assert read.stride() == (1, 3 * read.shape[2], 3)


@pytest.mark.parametrize("value", [0, 9, 77])
def test_an_orientation_that_does_not_exist_turns_nothing(value: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = value
    assert decode(encoded(Image.fromarray(noise(2, 4, 3)), exif=exif)).shape == (3, 2, 4)


def test_damaged_exif_does_not_cost_the_picture() -> None:
    content = encoded(Image.fromarray(noise(16, 8, 3)), "jpeg", exif=b"Exif\0\0no such thing, and long enough")
    assert decode(content).shape == (3, 16, 8)


def test_what_is_transparent_is_white_whatever_colour_hides_there() -> None:
    picture = Image.new("RGBA", (2, 1), (10, 20, 30, 0))
    picture.putpixel((1, 0), (255, 0, 0, 255))
    assert rows(encoded(picture)) == [[WHITE, [255, 0, 0]]]


def test_half_transparent_gray_is_mixed_with_white() -> None:
    ((pixel,),) = rows(encoded(Image.new("LA", (1, 1), (0, 128))))
    assert pixel == pytest.approx([127] * 3, abs=1)


def palette(**options: object) -> bytes:
    picture = Image.new("P", (2, 1), 0)
    picture.putpalette([255, 0, 0, 0, 0, 255])
    picture.putpixel((1, 0), 1)
    return encoded(picture, **options)


def test_a_palette_gives_its_colours_and_its_transparent_entry_is_white() -> None:
    assert rows(palette()) == [[[255, 0, 0], [0, 0, 255]]]
    assert rows(palette(transparency=0)) == [[WHITE, [0, 0, 255]]]
    assert rows(palette(transparency=b"\x00\xff")) == [[WHITE, [0, 0, 255]]]


def test_a_transparent_colour_of_an_opaque_picture_is_white() -> None:
    picture = Image.new("RGB", (2, 1), (1, 2, 3))
    picture.putpixel((1, 0), (9, 9, 9))
    assert rows(encoded(picture, transparency=(1, 2, 3))) == [[WHITE, [9, 9, 9]]]


def test_cmyk_becomes_the_colours_that_pillow_makes_of_it() -> None:
    content = encoded(Image.merge("CMYK", [Image.fromarray(noise(8, 8)) for _ in range(4)]), "jpeg", quality=95)
    wanted = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))
    assert np.array_equal(decode(content).permute(1, 2, 0).numpy(), wanted)


@pytest.mark.parametrize("kind", ["png", "tiff"])
def test_sixteen_bits_are_scaled_and_not_clipped(kind: str) -> None:
    values = np.array([[0, 257, 32768, 65535]], dtype=np.uint16)
    assert [pixel[0] for pixel in rows(encoded(Image.fromarray(values), kind))[0]] == [0, 1, 128, 255]


def png(depth: int, kind: int, row: bytes, transparent: bytes) -> bytes:
    """A PNG of two pixels in the colour type ``kind``, with a colour that counts as transparent."""
    parts = [(b"IHDR", struct.pack(">IIBBBBB", 2, 1, depth, kind, 0, 0, 0)), (b"tRNS", transparent)]
    parts += [(b"IDAT", zlib.compress(b"\0" + row)), (b"IEND", b"")]
    chunks = (
        struct.pack(">I", len(each[1])) + b"".join(each) + struct.pack(">I", zlib.crc32(b"".join(each)))
        for each in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


@pytest.mark.parametrize(
    ("picture", "second"),
    [
        (png(16, 0, struct.pack(">HH", 1000, 257), struct.pack(">H", 1000)), 1),
        (png(16, 2, struct.pack(">6H", 1000, 1000, 1000, 257, 257, 257), struct.pack(">3H", 1000, 1000, 1000)), 1),
        (png(8, 0, bytes([10, 200]), struct.pack(">H", 10)), 200),
        (png(4, 0, bytes([0x37]), struct.pack(">H", 3)), 119),
        (png(2, 0, bytes([0b01100000]), struct.pack(">H", 1)), 170),
        (png(1, 0, bytes([0b10000000]), struct.pack(">H", 1)), 0),
    ],
    ids=["16-bit gray", "16-bit RGB", "8-bit gray", "4-bit gray", "2-bit gray", "1-bit"],
)
def test_a_transparent_colour_of_any_depth_is_white(picture: bytes, second: int) -> None:
    assert rows(picture) == [[WHITE, [second] * 3]]


def test_values_of_unknown_range_are_refused() -> None:
    with pytest.raises(nhwc.UnreadableImageError, match="floats of unknown range; save it as 8-bit"):
        decode(encoded(Image.fromarray(np.ones((2, 2), dtype=np.float32)), "tiff"))
    with pytest.raises(nhwc.UnreadableImageError, match="do not fit 16 bits"):
        decode(encoded(Image.fromarray(np.full((2, 2), 70000, dtype=np.int32)), "tiff"))


def test_of_several_frames_the_first() -> None:
    frames = [Image.new("RGB", (2, 2), colour) for colour in ("red", "blue")]
    for kind in ("gif", "png", "tiff", "webp"):
        content = encoded(frames[0], kind, save_all=True, append_images=frames[1:], lossless=True)
        assert rows(content)[0][0] == [255, 0, 0], kind


@pytest.mark.parametrize("kind", ["png", "jpeg", "webp", "bmp", "tiff"])
def test_a_file_that_was_cut_off_is_refused_by_name(kind: str, tmp_path: Path) -> None:
    content = encoded(Image.fromarray(noise(64, 64, 3)), kind)
    where = tmp_path / f"a.{kind}"
    where.write_bytes(content[: len(content) // 2])
    with pytest.raises(nhwc.UnreadableImageError) as caught:
        decode(where)
    assert caught.value.name == str(where)
    assert str(caught.value) == f"cannot read the picture {where}: {caught.value.reason}"
    assert str(where) not in caught.value.reason


def test_a_damaged_file_is_refused() -> None:
    content = bytearray(encoded(Image.fromarray(noise(64, 64, 3))))
    at = content.index(b"IDAT") + 4
    content[at : at + 50] = bytes(50)
    with pytest.raises(nhwc.UnreadableImageError):
        decode(bytes(content))


def test_what_is_no_picture_says_so(tmp_path: Path) -> None:
    (tmp_path / "empty.jpg").write_bytes(b"")
    (tmp_path / "text.jpg").write_text("hello")
    for name, reason in {
        "empty.jpg": "it is empty",
        "text.jpg": "it is not a picture in a format that Pillow reads",
        "missing.jpg": "No such file or directory",
        "": "Is a directory",
    }.items():
        with pytest.raises(nhwc.UnreadableImageError) as caught:
            decode(tmp_path / name)
        assert reason in caught.value.reason, name
        assert caught.value.name == str(tmp_path / name)
    for content in (b"", b"hello"):
        with pytest.raises(nhwc.UnreadableImageError, match=f"the picture of {len(content)} bytes: it is "):
            decode(content)


def test_a_picture_that_would_fill_the_memory_is_refused() -> None:
    header = (50000).to_bytes(4, "big") * 2 + b"\x08\x02\0\0\0"
    chunks = b"".join(
        len(body).to_bytes(4, "big") + name + body + zlib.crc32(name + body).to_bytes(4, "big")
        for name, body in ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(9))), (b"IEND", b""))
    )
    with pytest.raises(nhwc.UnreadableImageError, match="decompression bomb"):
        decode(b"\x89PNG\r\n\x1a\n" + chunks)


@given(
    st.binary(max_size=200),
    st.sampled_from([b"", b"\xff\xd8\xff\xe0", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"BM", b"II*\0"]),
)
def test_no_bytes_raise_anything_else(content: bytes, start: bytes) -> None:
    try:
        read = decode(start + content)
    except nhwc.UnreadableImageError:
        return
    assert read.dtype == torch.uint8
    assert read.shape[0] == 3


def test_a_large_jpeg_is_decoded_to_no_more_than_is_asked_for() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # lies on its side: the upright picture is 120 high and 320 wide
    upright = encoded(Image.fromarray(noise(120, 320, 3)), "jpeg")
    aside = encoded(Image.fromarray(noise(320, 120, 3)), "jpeg", exif=exif)
    for content in (upright, aside):
        assert decode(content).shape == (3, 120, 320)
        assert decode(content, at_least=(61, 50)).shape == (3, 120, 320)
        assert decode(content, at_least=(60, 160)).shape == (3, 60, 160)
        assert decode(content, at_least=(20, 50)).shape == (3, 30, 80)
        assert decode(content, at_least=(500, 500)).shape == (3, 120, 320)
    png = encoded(Image.fromarray(noise(64, 64, 3)))
    assert decode(png, at_least=(8, 8)).shape == (3, 64, 64)


def test_the_error_travels_between_processes() -> None:
    error = pickle.loads(pickle.dumps(nhwc.UnreadableImageError("a.png", "it is empty")))
    assert (error.name, error.reason) == ("a.png", "it is empty")
    assert isinstance(error, ValueError)


def test_without_pillow_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(nhwc.DataError, match=r"needs Pillow; install it with: pip install 'nhwc\[vision\]'"):
        decode(b"x")
