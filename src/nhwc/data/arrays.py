"""Pictures of one size in a single .npz file, as CIFAR and its like are passed around."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import Dataset

from nhwc.data.transforms import applied
from nhwc.errors import DataError

if TYPE_CHECKING:
    import numpy as np

#: How files name the pictures and the labels of a split.
_NAMES = (("x_{}", "y_{}"), ("X_{}", "y_{}"), ("{}_images", "{}_labels"), ("{}_x", "{}_y"), ("{}_data", "{}_labels"))
#: The same in files of a single split.
_ALONE = (("images", "labels"), ("data", "labels"), ("x", "y"), ("X", "y"))
_WORDS = {"train": ("train",), "val": ("val", "valid", "validation"), "test": ("test",)}
_CLASS_NAMES = ("classes", "class_names", "label_names")
_CHANNELS = frozenset({1, 3, 4})


class Arrays(Dataset[Any]):
    """The pictures and labels of one split of an .npz file, as (picture, label); pictures are uint8 (C, H, W).

    split: "train", "val" or "test". The file holds `x_train` and `y_train`, or `train_images` and `train_labels`; one
        with `images` and `labels` alone is all "train".

    Pictures are uint8 of shape (N, H, W, C), (N, C, H, W) or (N, H, W), and are kept as N, H, W, C. Labels count from
    0, shape (N,) or (N, 1). classes: the names under `classes` or `label_names`, else the numbers as text.
    Raises DataError for a file that is not like that.
    """

    def __init__(
        self, path: str | Path, split: str = "train", transform: Callable[[torch.Tensor], Any] | None = None
    ) -> None:
        self.transform = transform
        if split not in _WORDS:
            raise DataError(f"split={split!r}: expected one of {', '.join(_WORDS)}")
        with _opened(path) as held:
            pictures, labels = _split_of(held, split, path)
            named = next((_read(held, key, path) for key in _CLASS_NAMES if key in held), None)
            pixels, numbers = _read(held, pictures, path), _read(held, labels, path)
        self._rows = _rows(pixels, f"{path}: {pictures}")
        self.labels = _labels(numbers, len(self._rows), f"{path}: {labels}")
        most = int(self.labels.max()) + 1
        self.classes = [str(each) for each in (range(most) if named is None else named.tolist())]
        if len(self.classes) < most:
            raise DataError(f"{path}: {len(self.classes)} names of classes, but labels up to {most - 1}")

    @staticmethod
    def splits(path: str | Path) -> tuple[str, ...]:
        """Those of "train", "val" and "test" that the file has pictures or labels of. Raises DataError for no .npz."""
        with _opened(path) as held:
            return tuple(split for split in _WORDS if any(name in held for pair in _pairs(split) for name in pair))

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        picture = self._rows[index].clone().permute(2, 0, 1)  # its own memory: a transform may work in place
        return applied(self.transform, picture), int(self.labels[index])


def _opened(path: str | Path) -> Any:
    try:
        import numpy as np
    except ImportError as error:
        raise DataError("reading .npz files needs NumPy; install it with: pip install numpy") from error
    try:
        opened = np.load(path, allow_pickle=False)
    except Exception as error:
        raise DataError(
            f"{path} cannot be read as an .npz file ({error}); it may be cut short: write it again"
        ) from error
    if not isinstance(opened, np.lib.npyio.NpzFile):
        raise DataError(f"{path} holds a single array; save pictures and labels together with numpy.savez")
    return opened


def _read(held: Mapping[str, Any], key: str, path: str | Path) -> Any:
    try:
        return held[key]
    except Exception as error:  # a damaged archive, or Python objects in it, which only unpickling would read
        raise DataError(f"{path}: {key} cannot be read: {error}") from error


def _pairs(split: str) -> list[tuple[str, str]]:
    """Names under which the pictures and labels of ``split`` may be found."""
    pairs = [(pictures.format(word), labels.format(word)) for word in _WORDS[split] for pictures, labels in _NAMES]
    return [*pairs, *_ALONE] if split == "train" else pairs


def _split_of(held: Mapping[str, object], split: str, path: str | Path) -> tuple[str, str]:
    pairs = _pairs(split)
    for pictures, labels in pairs:
        if pictures in held and labels in held:
            return pictures, labels
    raise DataError(
        f"{path} has no pictures and labels for {split!r} (such as {pairs[0][0]} and {pairs[0][1]}); "
        f"it holds {', '.join(held)}"
    )


def _rows(pixels: np.ndarray[Any, Any], what: str) -> torch.Tensor:
    if pixels.dtype != "uint8":
        raise DataError(f"{what} is {pixels.dtype}; expected uint8 from 0 to 255")
    rows = torch.from_numpy(pixels)
    if rows.dim() == 3:
        rows = rows.unsqueeze(-1)
    if rows.dim() != 4 or not {rows.shape[1], rows.shape[3]} & _CHANNELS:
        raise DataError(
            f"{what} has shape {pixels.shape}; expected (N, H, W, C) or (N, C, H, W) with 1, 3 or 4 channels"
        )
    if not len(rows):
        raise DataError(f"{what} holds no pictures")
    return (rows if rows.shape[3] in _CHANNELS else rows.permute(0, 2, 3, 1)).contiguous()


def _labels(numbers: np.ndarray[Any, Any], count: int, what: str) -> torch.Tensor:
    if numbers.ndim == 2 and numbers.shape[1] == 1:
        numbers = numbers[:, 0]
    if numbers.shape != (count,) or numbers.dtype.kind not in "iu":
        raise DataError(f"{what}: {numbers.dtype} of shape {numbers.shape}; expected {count} whole numbers")
    labels = torch.from_numpy(numbers.astype("int64"))
    if int(labels.min()) < 0:
        raise DataError(f"{what}: labels count from 0, found {int(labels.min())}")
    return labels
