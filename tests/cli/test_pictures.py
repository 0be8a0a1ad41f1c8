"""Pictures in every way that files store them."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nhwc.cli.pictures import find_pictures, pan, read_picture
from nhwc.errors import TargetError

RED, WHITE = (255, 0, 0), (255, 255, 255)


def saved(picture: Image.Image, path: Path, **options: object) -> Path:
    picture.save(path, **options)
    return path


def test_a_colour_picture_is_read_as_it_is(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    read = read_picture(saved(Image.fromarray(pixels), tmp_path / "a.png"))
    assert np.array_equal(np.asarray(read), pixels)


def test_gray_becomes_three_equal_channels(tmp_path: Path) -> None:
    read = read_picture(saved(Image.new("L", (2, 2), 90), tmp_path / "a.png"))
    assert read.mode == "RGB"
    assert read.getpixel((0, 0)) == (90, 90, 90)


def test_one_bit_becomes_black_and_white(tmp_path: Path) -> None:
    read = read_picture(saved(Image.new("1", (2, 2), 1), tmp_path / "a.png"))
    assert read.getpixel((1, 1)) == WHITE


def test_exif_turns_the_picture_upright(tmp_path: Path) -> None:
    picture = Image.new("RGB", (4, 2))
    picture.putpixel((0, 0), RED)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned a quarter clockwise
    read = read_picture(saved(picture, tmp_path / "a.png", exif=exif))
    assert read.size == (2, 4)
    assert read.getpixel((1, 0)) == RED


def test_what_is_transparent_is_white_whatever_colour_hides_there(tmp_path: Path) -> None:
    picture = Image.new("RGBA", (2, 1), (10, 20, 30, 0))
    picture.putpixel((1, 0), (*RED, 255))
    read = read_picture(saved(picture, tmp_path / "a.png"))
    assert (read.getpixel((0, 0)), read.getpixel((1, 0))) == (WHITE, RED)


def test_half_transparent_gray_is_mixed_with_white(tmp_path: Path) -> None:
    read = read_picture(saved(Image.new("LA", (1, 1), (0, 128)), tmp_path / "a.png"))
    assert read.getpixel((0, 0)) == pytest.approx((127, 127, 127), abs=1)


def test_a_palette_gives_its_colours_and_its_transparent_entry_is_white(tmp_path: Path) -> None:
    picture = Image.new("P", (2, 1), 0)
    picture.putpalette([9, 9, 9, *RED])
    picture.putpixel((1, 0), 1)
    opaque = read_picture(saved(picture, tmp_path / "a.png"))
    clear = read_picture(saved(picture, tmp_path / "b.png", transparency=0))
    assert (opaque.getpixel((0, 0)), opaque.getpixel((1, 0))) == ((9, 9, 9), RED)
    assert (clear.getpixel((0, 0)), clear.getpixel((1, 0))) == (WHITE, RED)


@pytest.mark.parametrize("suffix", [".png", ".tif"])
def test_sixteen_bits_are_scaled_not_clipped(tmp_path: Path, suffix: str) -> None:
    values = np.array([[0, 257, 32896, 65535]], dtype=np.uint16)
    read = read_picture(saved(Image.fromarray(values), tmp_path / f"a{suffix}"))
    assert [read.getpixel((x, 0))[0] for x in range(4)] == [0, 1, 128, 255]


def test_cmyk_becomes_rgb(tmp_path: Path) -> None:
    read = read_picture(saved(Image.new("CMYK", (2, 2), (0, 255, 255, 0)), tmp_path / "a.tif"))
    assert read.getpixel((0, 0)) == RED


def test_the_first_frame_of_an_animation_is_taken(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (2, 2), RED), Image.new("RGB", (2, 2), WHITE)]
    read = read_picture(saved(frames[0], tmp_path / "a.gif", save_all=True, append_images=frames[1:]))
    assert read.getpixel((0, 0)) == RED


def test_floats_are_refused_with_the_fix(tmp_path: Path) -> None:
    path = saved(Image.new("F", (2, 2), 0.5), tmp_path / "a.tif")
    with pytest.raises(TargetError, match=r"a\.tif: its pixels are floats of unknown range; save it as 8-bit"):
        read_picture(path)


def test_values_beyond_sixteen_bits_are_refused(tmp_path: Path) -> None:
    path = saved(Image.new("I", (2, 2), 70000), tmp_path / "a.tif")
    with pytest.raises(TargetError, match="do not fit 16 bits"):
        read_picture(path)


@pytest.mark.parametrize("content", [b"", b"not a picture at all"])
def test_what_is_no_picture_is_one_sentence_naming_the_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.jpg").write_bytes(content)
    with pytest.raises(TargetError, match=r"cannot read the picture .*bad\.jpg: .+") as caught:
        read_picture(tmp_path / "bad.jpg")
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is not None


def test_a_truncated_picture_is_refused(tmp_path: Path) -> None:
    whole = saved(Image.effect_noise((64, 64), 50), tmp_path / "a.png").read_bytes()
    (tmp_path / "cut.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(TargetError, match="truncated"):
        read_picture(tmp_path / "cut.png")


def test_a_picture_too_large_to_be_true_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(Image.new("RGB", (20, 20)), tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 300)
    with pytest.raises(TargetError, match="exceeds limit of 300 pixels"):
        read_picture(path)


def test_pictures_are_found_below_the_folder_in_order_without_hidden_or_other_files(tmp_path: Path) -> None:
    for name in ("b.JPG", "a/c.png", "a/notes.txt", ".hidden/d.png", ".e.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert find_pictures(tmp_path) == [tmp_path / "a" / "c.png", tmp_path / "b.JPG"]


def test_one_file_is_a_folder_of_one(tmp_path: Path) -> None:
    (tmp_path / "picture.raw").touch()
    assert find_pictures(tmp_path / "picture.raw") == [tmp_path / "picture.raw"]


def test_a_missing_or_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="no such folder or picture"):
        find_pictures(tmp_path / "nowhere")
    with pytest.raises(TargetError, match="no picture in it"):
        find_pictures(tmp_path)


def test_a_pan_moves_from_corner_to_corner() -> None:
    column, row = np.meshgrid(np.arange(10), np.arange(20))
    frames = pan(Image.fromarray(np.stack([column, row, row * 0], -1).astype(np.uint8)), 3)
    assert [frame.size for frame in frames] == [(8, 16)] * 3
    assert [frame.getpixel((0, 0))[:2] for frame in frames] == [(0, 0), (1, 2), (2, 4)]


def test_a_pan_over_a_pixel_still_has_its_frames() -> None:
    assert [frame.size for frame in pan(Image.new("RGB", (1, 1)), 2)] == [(1, 1)] * 2
