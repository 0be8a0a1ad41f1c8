"""Data sets: folders, arrays in a file, and made-up pictures."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from data.conftest import CLASSES, PER_CLASS
from PIL import Image

import nhwc
from nhwc.data import Arrays, ImageFolder, Synthetic, Unreadable


def test_a_folder_gives_every_picture_with_the_label_of_its_class(folder: Path) -> None:
    pictures = ImageFolder(folder)
    assert pictures.classes == list(CLASSES)
    assert pictures.class_to_idx == {name: label for label, name in enumerate(CLASSES)}
    assert len(pictures) == len(CLASSES) * PER_CLASS
    assert pictures.samples[4] == (str(folder / "cats" / "more" / "4.png"), 0)
    for (path, label), (picture, found) in zip(pictures.samples, pictures, strict=False):
        assert found == label == CLASSES.index(Path(path).relative_to(folder).parts[0])
        assert torch.equal(picture, nhwc.data.decode(path))


def test_the_order_is_that_of_the_paths_whatever_the_file_system_says(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, plain = ImageFolder(folder).samples, os.walk
    assert before == sorted(before, key=lambda sample: (sample[1], Path(sample[0]).parent, sample[0]))

    def backwards(*arguments: object, **options: object) -> object:
        for where, folders, files in plain(*arguments, **options):
            folders.reverse()
            yield where, folders, files[::-1]

    monkeypatch.setattr(os, "walk", backwards)
    assert ImageFolder(folder).samples == before


def test_the_transform_gets_the_picture(folder: Path) -> None:
    assert ImageFolder(folder, lambda picture: picture.shape)[0] == ((3, 40, 50), 0)


def test_other_files_and_hidden_ones_are_passed_over(folder: Path) -> None:
    before = ImageFolder(folder).samples
    for name in ("notes.txt", ".hidden.png", ".DS_Store", "a.png.part"):
        (folder / "cats" / name).write_text("x")
    (folder / ".cache").mkdir()
    (folder / "cats" / ".thumbnails").mkdir()
    (folder / "cats" / ".thumbnails" / "0.png").write_text("x")
    (folder / "list.txt").write_text("x")
    assert ImageFolder(folder).samples == before


def test_endings_may_be_written_in_capitals(folder: Path) -> None:
    (folder / "cats" / "0.png").rename(folder / "cats" / "0.PNG")
    assert len(ImageFolder(folder)) == len(CLASSES) * PER_CLASS


def test_links_are_followed_but_not_in_circles(folder: Path) -> None:
    (folder / "linked").symlink_to(folder / "cats")
    (folder / "cats" / "round").symlink_to(folder / "cats")
    found = ImageFolder(folder)
    assert found.classes == sorted([*CLASSES, "linked"])
    assert len(found) == (len(CLASSES) + 1) * PER_CLASS


def test_what_cannot_be_read_is_returned_by_name(spoilt: Path) -> None:
    pictures = ImageFolder(spoilt)
    found = {
        Path(each.name).relative_to(spoilt).as_posix(): each.reason for each in pictures if isinstance(each, Unreadable)
    }
    assert set(found) == {"cats/1.png", "dogs/2.png", "newts/0.png"}
    assert found["cats/1.png"] == "it is empty"
    assert "truncated" in found["dogs/2.png"]
    (spoilt / "cats" / "0.png").unlink()
    gone = pictures[0]
    assert isinstance(gone, Unreadable)
    assert "No such file" in str(gone)


def test_a_fault_of_the_transform_is_not_taken_for_one_of_the_file(folder: Path) -> None:
    def broken(picture: torch.Tensor) -> torch.Tensor:
        raise ValueError("broken")

    with pytest.raises(ValueError, match=r"^broken$"):
        ImageFolder(folder, broken)[0]


def test_large_jpegs_are_decoded_smaller_where_that_is_enough(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    Image.new("RGB", (400, 400), "red").save(tmp_path / "a" / "0.jpg")
    picture, _label = ImageFolder(tmp_path, at_least=(100, 100))[0]
    assert picture.shape == (3, 100, 100)


def test_a_folder_without_classes_or_pictures_is_refused(tmp_path: Path) -> None:
    with pytest.raises(nhwc.DataError, match="no such folder; give one that holds a folder of pictures for each class"):
        ImageFolder(tmp_path / "absent")
    (tmp_path / "0.png").write_text("x")
    with pytest.raises(nhwc.DataError, match="holds no folders; put the pictures of each class into a folder"):
        ImageFolder(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(nhwc.DataError, match=r"no pictures for empty \(looked for .*\); remove the folder or fill it"):
        ImageFolder(tmp_path)


PIXELS = np.random.default_rng(0).integers(0, 256, (6, 8, 9, 3), dtype=np.uint8)
LABELS = np.array([0, 1, 2, 0, 1, 2])


@pytest.mark.parametrize(
    "pixels",
    [PIXELS, PIXELS.transpose(0, 3, 1, 2), PIXELS[..., :1], PIXELS[..., 0]],
    ids=["NHWC", "NCHW", "NHW1", "NHW"],
)
@pytest.mark.parametrize("labels", [LABELS, LABELS[:, None], LABELS.astype(np.uint8)], ids=["N", "N1", "uint8"])
def test_arrays_in_every_order_become_views_of_rows(pixels: np.ndarray, labels: np.ndarray, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x_train=pixels, y_train=labels)
    found = Arrays(tmp_path / "a.npz")
    assert len(found) == 6
    assert found.classes == ["0", "1", "2"]
    picture, label = found[4]
    channels = 3 if 3 in pixels.shape else 1
    assert (picture.shape, label) == ((channels, 8, 9), 1)
    assert np.array_equal(picture.permute(1, 2, 0).numpy(), PIXELS[4][..., :channels])
    assert picture.stride() == (1, 9 * channels, channels)


@pytest.mark.parametrize(
    ("split", "names"),
    [
        ("train", ("x_train", "y_train")),
        ("train", ("train_images", "train_labels")),
        ("train", ("images", "labels")),
        ("test", ("x_test", "y_test")),
        ("val", ("val_images", "val_labels")),
        ("val", ("x_valid", "y_valid")),
    ],
)
def test_arrays_are_found_by_the_names_in_use(split: str, names: tuple[str, str], tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **dict(zip(names, (PIXELS, LABELS), strict=True)), classes=np.array(["a", "b", "c"]))
    found = Arrays(tmp_path / "a.npz", split, transform=lambda picture: picture.sum())
    assert found.classes == ["a", "b", "c"]
    assert found[2] == (int(PIXELS[2].sum()), 2)


def test_a_transform_in_place_reaches_no_other_epoch(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=PIXELS, labels=LABELS)
    found = Arrays(tmp_path / "a.npz", transform=torch.Tensor.zero_)
    assert not found[0][0].any()
    found.transform = None
    assert found[0][0].any()


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"images": PIXELS / 255, "labels": LABELS}, "images is float64; expected uint8 from 0 to 255"),
        ({"images": PIXELS[..., None], "labels": LABELS}, "expected .N, H, W, C. or .N, C, H, W. with 1, 3 or 4"),
        ({"images": np.zeros((6, 8, 9, 5), np.uint8), "labels": LABELS}, "with 1, 3 or 4 channels"),
        ({"images": PIXELS[:0], "labels": LABELS[:0]}, "images holds no pictures"),
        ({"images": PIXELS, "labels": LABELS[:5]}, r"int64 of shape \(5,\); expected 6 whole numbers"),
        ({"images": PIXELS, "labels": LABELS / 2}, "expected 6 whole numbers"),
        ({"images": PIXELS, "labels": LABELS - 1}, "labels count from 0, found -1"),
        ({"images": PIXELS, "labels": LABELS, "classes": np.array(["a"])}, "1 names of classes, but labels up to 2"),
        ({"x_test": PIXELS, "y_test": LABELS}, "no pictures and labels for 'train' .*; it holds x_test, y_test"),
        ({"images": PIXELS, "labels": np.array([None] * 6)}, "allow_pickle"),
    ],
)
def test_arrays_that_are_none_are_refused(arrays: dict[str, np.ndarray], said: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(nhwc.DataError, match=said):
        Arrays(tmp_path / "a.npz")


def test_files_that_hold_no_arrays_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("hello")
    np.save(tmp_path / "one.npy", PIXELS)
    for name, said in {
        "text.npz": "cannot be read as an .npz file",
        "absent.npz": "No such file",
        "one.npy": "holds a single array; save pictures and labels together with numpy.savez",
    }.items():
        with pytest.raises(nhwc.DataError, match=said):
            Arrays(tmp_path / name)
    with pytest.raises(nhwc.DataError, match="split='tset': expected one of train, val, test"):
        Arrays(tmp_path / "text.npz", split="tset")


def test_made_up_pictures_depend_on_seed_and_index_alone() -> None:
    one, two, other = Synthetic(9, (3, 5, 6), 4), Synthetic(20, (3, 5, 6), 4), Synthetic(9, (3, 5, 6), 4, seed=1)
    backwards = [one[index] for index in reversed(range(9))][::-1]
    for index in range(9):
        assert torch.equal(one[index][0], backwards[index][0])
        assert torch.equal(one[index][0], two[index][0])
        assert one[index][1] == two[index][1]
    assert any(not torch.equal(one[index][0], other[index][0]) for index in range(9))
    assert one[0][0].stride() == (1, 18, 3)
    assert {label for _picture, label in Synthetic(200, (1, 2, 2), 4)} == {0, 1, 2, 3}


def test_made_up_pictures_are_told_apart_by_their_tint() -> None:
    pictures = Synthetic(300, (3, 16, 16), 3)
    means = [[], [], []]
    for picture, label in pictures:
        means[label].append(picture.float().mean((1, 2)))
    centres = torch.stack([torch.stack(each).mean(0) for each in means])
    right = sum(
        int((picture.float().mean((1, 2)) - centres).norm(dim=1).argmin()) == label for picture, label in pictures
    )
    assert right == 300


def test_made_up_pictures_of_no_size_are_refused() -> None:
    with pytest.raises(nhwc.DataError, match="expected sizes of at least 1"):
        Synthetic(4, (3, 0, 5))
    with pytest.raises(IndexError):
        Synthetic(4, (3, 2, 5))[4]


def test_links_up_to_the_root_or_above_lead_nowhere(folder: Path) -> None:
    before = ImageFolder(folder).samples
    (folder / "cats" / "up").symlink_to("..")
    (folder / "cats" / "more" / "further").symlink_to(folder.parent)
    (folder / "all").symlink_to(".")
    assert ImageFolder(folder).samples == before
    through = folder.parent / "a link to it"
    through.symlink_to(folder)
    try:
        assert len(ImageFolder(through)) == len(before)
    finally:
        through.unlink()


@pytest.mark.timeout(20)
def test_a_pipe_is_unreadable_and_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "cats" / "z.png")
    pictures = ImageFolder(folder)
    (found,) = [pictures[index] for index, (path, _label) in enumerate(pictures.samples) if path.endswith("z.png")]
    assert found == Unreadable(str(folder / "cats" / "z.png"), "it is no regular file but a pipe, a socket or a device")


def test_a_name_is_shown_on_one_line_that_can_be_printed(folder: Path) -> None:
    for name in (b"inv\xff\xfe.png", b"new\nline.png"):
        (folder / "cats" / os.fsdecode(name)).write_bytes(b"text")
    found = [each for each in ImageFolder(folder) if isinstance(each, Unreadable)]
    assert {os.fsencode(Path(each.name).name) for each in found} == {b"inv\xff\xfe.png", b"new\nline.png"}
    shown = {str(each).partition("cats/")[2].partition(":")[0] for each in found}
    assert shown == {"inv\\xff\\xfe.png", "new\\nline.png"}
    assert "new\\nline.png" in str(nhwc.UnreadableImageError("new\nline.png", "it is empty"))


@pytest.mark.parametrize("name", ["ToTensor", "PILToTensor"])
def test_a_transform_that_takes_pictures_of_pillow_is_named(name: str, folder: Path) -> None:
    from torchvision import transforms

    with pytest.raises(
        nhwc.DataError, match=r"the transform takes pictures of Pillow .* leave out ToTensor and PILToTe"
    ):
        ImageFolder(folder, getattr(transforms, name)())[0]


def test_other_type_errors_of_a_transform_stay(folder: Path) -> None:
    def broken(picture: torch.Tensor) -> torch.Tensor:
        raise TypeError("broken")

    with pytest.raises(TypeError, match=r"^broken$"):
        ImageFolder(folder, broken)[0]


def test_splits_are_told_by_the_names_in_the_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x_train=PIXELS, y_train=LABELS, x_valid=PIXELS)
    np.savez(tmp_path / "b.npz", images=PIXELS, labels=LABELS)
    assert Arrays.splits(tmp_path / "a.npz") == ("train", "val")
    assert Arrays.splits(tmp_path / "b.npz") == ("train",)
    with pytest.raises(nhwc.DataError, match="cannot be read as an"):
        Arrays.splits(tmp_path / "c.npz")
