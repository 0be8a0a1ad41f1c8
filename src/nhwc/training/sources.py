"""What a run learns from and is judged on: the datasets that the settings name, and the loaders over them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.utils.data import Subset

from nhwc import data
from nhwc.errors import TrainingError
from nhwc.training.context import Context
from nhwc.training.settings import IMAGENET_MEAN, IMAGENET_STD, TrainSettings
from nhwc.training.spelling import spelled

SYNTHETIC = "synthetic"
_TRAINING, _EVALUATION = ("train",), ("val", "valid", "validation", "test")
_USUAL_SIZE = 224


@dataclass(frozen=True)
class Sources:
    """training, evaluation: map-style datasets of (image, class number); evaluation is None where there is none.

    names: of the classes, in the order of their numbers. channels, size: of one image, (channels, size, size).
    """

    training: Any
    evaluation: Any
    names: tuple[str, ...]
    channels: int
    size: int

    @property
    def classes(self) -> int:
        return len(self.names)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of one image."""
        return self.channels, self.size, self.size

    def statistics(self, settings: TrainSettings) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and standard deviation per channel. Raises TrainingError where the settings give other channels."""
        usual = self.channels == len(IMAGENET_MEAN)
        mean = settings.mean or (IMAGENET_MEAN if usual else (0.5,) * self.channels)
        std = settings.std or (IMAGENET_STD if usual else (0.5,) * self.channels)
        for name, values in (("mean", mean), ("std", std)):
            if len(values) != self.channels:
                raise TrainingError(
                    f"{spelled(name)} has {len(values)} numbers, but the images have {self.channels} channels"
                )
        return mean, std


def open_sources(settings: TrainSettings) -> Sources:
    """Open what ``settings.data`` and ``settings.evaluate`` name. Raises TrainingError, or the data's own error."""
    if settings.data == SYNTHETIC:
        return _synthetic(settings)
    path = Path(settings.data)
    if path.suffix == ".npz":
        return _arrays(path, settings)
    if path.is_dir():
        return _folders(path, settings)
    raise TrainingError(f"{spelled('data')} {settings.data!r} is neither a folder, a .npz file, nor {SYNTHETIC!r}")


def _synthetic(settings: TrainSettings) -> Sources:
    size = settings.size or _USUAL_SIZE
    count, classes = settings.samples, settings.classes
    further = max(count // 10, 1)
    whole = data.Synthetic(count + further, (3, size, size), classes, settings.seed)
    training, evaluation = Subset(whole, range(count)), Subset(whole, range(count, count + further))
    return Sources(training, evaluation, tuple(whole.classes), 3, size)


def _folders(path: Path, settings: TrainSettings) -> Sources:
    size = settings.size or _USUAL_SIZE
    inside = _first_folder(path, _TRAINING)
    beside = None if inside is None else _first_folder(path, _EVALUATION)
    judged = Path(settings.evaluate) if settings.evaluate is not None else beside
    transform = data.train_transform(size) if settings.augment else data.eval_transform(size)
    training = data.ImageFolder(inside or path, transform)
    evaluation = None if judged is None else data.ImageFolder(judged, data.eval_transform(size))
    if evaluation is not None:
        unknown = sorted(set(evaluation.classes) - set(training.classes))
        if unknown or evaluation.class_to_idx != {name: training.class_to_idx[name] for name in evaluation.classes}:
            raise TrainingError(
                f"{judged} has other classes than the training data ({', '.join(unknown) or 'some are missing'}); "
                "both need the same class folders"
            )
    return Sources(training, evaluation, tuple(training.classes), 3, size)


def _first_folder(path: Path, names: tuple[str, ...]) -> Path | None:
    return next((path / name for name in names if (path / name).is_dir()), None)


def _arrays(path: Path, settings: TrainSettings) -> Sources:
    training = data.Arrays(path, "train")
    channels, height, width = training[0][0].shape
    if settings.size is None and height != width:
        raise TrainingError(
            f"the images in {path} are {height} x {width}; give the {spelled('size')} of a square to crop them to"
        )
    size = settings.size or height
    whole = height == width == size  # arrays of the size asked for are not cut
    asked = None if whole else data.eval_transform(size)
    training.transform = data.train_transform(size) if settings.augment else asked
    evaluation = _evaluation_arrays(path, settings)
    if evaluation is not None:
        _bring_to(evaluation, channels, size, whole)
    known = len(training.classes)
    if evaluation is not None and int(evaluation.labels.max()) >= known:
        raise TrainingError(
            f"labels to evaluate on go up to {int(evaluation.labels.max())}, those to train on only to {known - 1}"
        )
    return Sources(training, evaluation, tuple(training.classes), channels, size)


def _evaluation_arrays(path: Path, settings: TrainSettings) -> Any:
    """The val of a file, else its test; None where it has neither. One that is damaged is told, not passed over."""
    if settings.evaluate is not None:
        there = data.Arrays.splits(settings.evaluate)
        return data.Arrays(settings.evaluate, "val" if "val" in there and "test" not in there else "test")
    there = data.Arrays.splits(path)
    return next((data.Arrays(path, split) for split in ("val", "test") if split in there), None)


def _bring_to(evaluation: Any, channels: int, size: int, whole: bool) -> None:
    """Give arrays the transform that makes pictures of the training's size of them: all of each where that is whole."""
    shape = tuple(evaluation[0][0].shape)
    if shape[0] != channels:
        raise TrainingError(f"images to evaluate on have {shape[0]} channels, those to train on {channels}")
    if shape[1:] != (size, size):
        evaluation.transform = data.eval_transform(size, resize=size if whole else None)


def require_enough(sources: Sources, context: Context) -> None:
    """Raise TrainingError where there are too few images for a batch, or statistics of other channels."""
    settings, size = context.settings, context.world.size
    count = len(sources.training)
    if count < settings.batch * size:
        raise TrainingError(
            f"{settings.data} has {count} images, fewer than one batch of {settings.batch * size}; "
            f"give {spelled('batch')} {max(count // size, 1)} or less"
        )
    if sources.evaluation is not None and len(sources.evaluation) < size:
        judged = len(sources.evaluation)
        raise TrainingError(f"{judged} images to evaluate on are fewer than the {size} processes; give more")
    sources.statistics(settings)


def loader(sources: Sources, context: Context, *, training: bool) -> data.Loader:
    """This rank's batches of the data to train on, or of that to evaluate on.

    Training batches are all of one size: the rest of an epoch is left out, unreadable pictures are replaced. Evaluation
    sees every readable picture once.
    """
    settings, size = context.settings, context.world.size
    dataset = sources.training if training else sources.evaluation
    mean, std = sources.statistics(settings)
    return data.Loader(
        dataset,
        settings.batch,
        shuffle=training,
        seed=settings.seed,
        workers=settings.workers,
        drop_last=training,
        rank=context.world.rank,
        world_size=size,
        device=context.device,
        mean=mean,
        std=std,
        unreadable="replace" if training else "drop",
    )
