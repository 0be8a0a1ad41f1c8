"""What a run learns from: folders, arrays, noise; and what is wrong with them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy
import pytest
from training.runs import certain, settings, train

import nhwc
from nhwc.errors import DataError, TrainingError
from nhwc.training.sources import open_sources


def test_a_folder_with_training_and_evaluation(textures: Path) -> None:
    found = open_sources(settings(data=str(textures), size=None))
    assert (found.names, found.shape) == (("brick", "grass", "gravel"), (3, 224, 224))
    assert (len(found.training), len(found.evaluation)) == (96, 48)


def test_a_folder_of_classes_has_nothing_to_evaluate_on(textures: Path) -> None:
    asked = settings(data=str(textures / "train"), size=16, epochs=1, batch=32)
    assert open_sources(asked).evaluation is None
    kept = train(asked)
    assert kept.evaluations == []
    assert kept.notes[1] == "96 images of 3 classes to train on, 0 to evaluate on"
    with_val = open_sources(settings(data=str(textures / "train"), evaluate=str(textures / "val")))
    assert len(with_val.evaluation) == 48


def test_classes_that_differ(textures: Path, tmp_path: Path) -> None:
    shutil.copytree(textures, tmp_path / "data")
    (tmp_path / "data" / "val" / "brick").rename(tmp_path / "data" / "val" / "bricks")
    with pytest.raises(TrainingError, match=r"val has other classes than the training data \(bricks\)"):
        open_sources(settings(data=str(tmp_path / "data")))


def test_classes_that_are_missing_from_the_evaluation_keep_their_numbers(textures: Path, tmp_path: Path) -> None:
    shutil.copytree(textures, tmp_path / "data")
    shutil.rmtree(tmp_path / "data" / "val" / "brick")
    with pytest.raises(TrainingError, match="some are missing"):
        open_sources(settings(data=str(tmp_path / "data")))


def test_arrays(faces: Path) -> None:
    found = open_sources(settings(data=str(faces), size=None))
    assert (found.shape, found.names, len(found.training), len(found.evaluation)) == ((1, 25, 25), ("0", "1"), 160, 40)
    assert found.statistics(settings()) == ((0.5,), (0.5,))
    assert found.evaluation[0][0].shape == (1, 25, 25)
    assert open_sources(settings(data=str(faces), size=20)).evaluation[0][0].shape == (1, 20, 20)
    with pytest.raises(TrainingError, match="mean has 3 numbers, but the images have 1 channels"):
        found.statistics(settings(mean=(0.1, 0.2, 0.3)))


def test_arrays_without_augmentation_are_what_they_are(faces: Path) -> None:
    found = open_sources(settings(data=str(faces), size=None, augment=False))
    with numpy.load(faces) as held:
        assert (found.training[3][0].permute(1, 2, 0).numpy() == held["x_train"][3]).all()


def test_arrays_without_a_test_split(tmp_path: Path) -> None:
    path = tmp_path / "some.npz"
    numpy.savez(path, images=numpy.zeros((12, 8, 6, 3), "uint8"), labels=numpy.arange(12) % 2)
    with pytest.raises(TrainingError, match="are 8 x 6; give the size of a square"):
        open_sources(settings(data=str(path), size=None))
    found = open_sources(settings(data=str(path), size=6))
    assert (found.evaluation, found.training[0][0].shape) == (None, (3, 6, 6))


def test_arrays_with_unknown_labels(tmp_path: Path) -> None:
    path = tmp_path / "some.npz"
    pictures = numpy.zeros((4, 8, 8, 3), "uint8")
    numpy.savez(path, x_train=pictures, y_train=[0, 1, 0, 1], x_test=pictures, y_test=[0, 1, 2, 1])
    with pytest.raises(TrainingError, match="labels to evaluate on go up to 2, those to train on only to 1"):
        open_sources(settings(data=str(path), size=None))


def test_noise_to_evaluate_on_is_of_the_same_classes_but_other() -> None:
    kept = train(settings(samples=320, epochs=6, classes=2, lr=0.1), certain)
    assert kept.evaluations[-1].top1 > 80


@pytest.mark.parametrize(
    ("data", "error", "sentence"),
    [
        ("nowhere", TrainingError, "data 'nowhere' is neither a folder, a .npz file, nor 'synthetic'"),
        ("gone.npz", DataError, "gone.npz cannot be read"),
    ],
)
def test_data_that_is_not_there(data: str, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        train(settings(data=data))


def test_less_than_one_batch() -> None:
    with pytest.raises(
        TrainingError, match="synthetic has 32 images, fewer than one batch of 64; give batch 32 or less"
    ):
        train(settings(batch=64))


def test_pictures_that_cannot_be_read_are_named_counted_and_replaced(textures: Path, tmp_path: Path) -> None:
    shutil.copytree(textures, tmp_path / "data")
    broken = [tmp_path / "data" / "train" / "brick" / "01.png", tmp_path / "data" / "val" / "grass" / "00.png"]
    for path in broken:
        path.write_bytes(path.read_bytes()[:100])
    asked = settings(data=str(tmp_path / "data"), size=16, batch=16, epochs=1)
    kept = train(asked)
    assert [each.step for each in kept.steps] == [1, 2, 3, 4, 5, 6]
    assert kept.evaluations[0].images == 47
    for path in broken:
        assert sum(f"{path} cannot be read and takes no part: " in note for note in kept.notes) == 1
    assert kept.notes[-1] == "2 pictures could not be read and took no part"
    assert set(nhwc.train(certain, asked).skipped) == {str(path) for path in broken}


def test_nothing_to_evaluate_on_can_be_read(textures: Path, tmp_path: Path) -> None:
    shutil.copytree(textures, tmp_path / "data")
    for path in (tmp_path / "data" / "val").rglob("*.png"):
        path.write_bytes(b"")
    with pytest.raises(TrainingError, match="none of the pictures to evaluate on can be read"):
        train(settings(data=str(tmp_path / "data"), size=16, batch=16, epochs=1))


PICTURES, LABELS = numpy.random.default_rng(0).integers(0, 256, (12, 8, 8, 3), "uint8"), numpy.arange(12) % 2


@pytest.mark.parametrize(
    ("val", "sentence"),
    [
        ({"x_val": PICTURES / 255, "y_val": LABELS}, "x_val is float64; expected uint8"),
        ({"x_val": PICTURES, "y_val": LABELS / 2}, "y_val: float64 .* expected 12 whole numbers"),
        ({"x_val": PICTURES}, "no pictures and labels for 'val'"),
        ({"x_val": PICTURES[..., :1], "y_val": LABELS}, "to evaluate on have 1 channels, those to train on 3"),
    ],
)
def test_arrays_to_evaluate_on_that_are_none_are_told(
    val: dict[str, numpy.ndarray], sentence: str, tmp_path: Path
) -> None:
    path = tmp_path / "some.npz"
    numpy.savez(path, x_train=PICTURES, y_train=LABELS, x_test=PICTURES[:5], y_test=LABELS[:5], **val)
    with pytest.raises((DataError, TrainingError), match=sentence):
        open_sources(settings(data=str(path), size=None))


def test_arrays_to_evaluate_on_come_to_the_size_of_those_to_train_on(tmp_path: Path) -> None:
    large = PICTURES.repeat(3, axis=1).repeat(2, axis=2)
    path, other = tmp_path / "some.npz", tmp_path / "other.npz"
    numpy.savez(path, x_train=PICTURES, y_train=LABELS, x_val=large, y_val=LABELS)
    numpy.savez(other, x_val=large, y_val=LABELS)
    for asked in ({"data": str(path)}, {"data": str(path), "evaluate": str(other)}):
        found = open_sources(settings(size=None, **asked))
        assert [each[0].shape for each in (found.training[0], found.evaluation[0])] == [(3, 8, 8)] * 2
    assert open_sources(settings(data=str(path), size=6)).evaluation[0][0].shape == (3, 6, 6)


def test_names_that_cannot_be_printed_are_escaped(textures: Path, tmp_path: Path) -> None:
    shutil.copytree(textures, tmp_path / "data")
    for name in (b"new\nline.png", b"inv\xff\xfe.png"):
        Path(os.fsdecode(os.fsencode(tmp_path / "data" / "train" / "brick") + b"/" + name)).write_bytes(b"text")
    asked = settings(data=str(tmp_path / "data"), size=16, batch=14, epochs=1, folder=tmp_path / "run")
    notes = [note for note in train(asked).notes if "cannot be read" in note]
    assert sorted(note.partition("brick/")[2] for note in notes) == [
        f"{name} cannot be read and takes no part: it is not a picture in a format that Pillow reads"
        for name in ("inv\\xff\\xfe.png", "new\\nline.png")
    ]
    "".join(notes).encode()
    assert all(line.isascii() for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines())
