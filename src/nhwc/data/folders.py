"""A folder of pictures, a folder in it for each class."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from nhwc.data.decoding import decode
from nhwc.data.transforms import applied
from nhwc.data.unreadable import Unreadable
from nhwc.errors import DataError, UnreadableImageError

#: Endings of files that are taken for pictures.
SUFFIXES = frozenset(".avif .bmp .gif .jpeg .jpg .pgm .png .ppm .tif .tiff .webp".split())

Transform = Callable[[torch.Tensor], Any]


class ImageFolder(Dataset[Any]):
    """The pictures below ``root/<class>/``, at any depth, as (picture, label).

    transform: what is done with a picture (uint8 (3, H, W), H, W, 3 in memory), random or not.
    at_least: as for ``decode``: large JPEGs are decoded to no more than is needed. It changes pixels slightly.

    classes: the names of the folders, sorted. class_to_idx: their labels. samples: (path, label) of every picture.
    Hidden files and other endings than those of pictures are passed over. Links are followed, but not up to ``root``.

    An item that cannot be read is an ``Unreadable`` with its path and the reason. ``collate`` leaves it out with a
    warning, ``Loader`` counts it. Raises DataError where the folder has no classes, or a class has no pictures.
    """

    def __init__(
        self, root: str | Path, transform: Transform | None = None, *, at_least: tuple[int, int] | None = None
    ) -> None:
        self.root = Path(root)
        self.transform = transform
        self.at_least = at_least
        self.classes = _classes(self.root)
        self.class_to_idx = {name: label for label, name in enumerate(self.classes)}
        above = _above(self.root)
        found = {name: list(_pictures(self.root / name, above)) for name in self.classes}
        if empty := [name for name, paths in found.items() if not paths]:
            raise DataError(
                f"{self.root}: no pictures for {', '.join(empty)} (looked for {' '.join(sorted(SUFFIXES))}); "
                "remove the folder or fill it"
            )
        self.samples = [(path, self.class_to_idx[name]) for name, paths in found.items() for path in paths]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, int] | Unreadable:
        path, label = self.samples[index]
        try:
            picture = decode(path, at_least=self.at_least)
        except UnreadableImageError as error:
            return Unreadable(error.name, error.reason)
        return applied(self.transform, picture), label


def _classes(root: Path) -> list[str]:
    if not root.is_dir():
        raise DataError(f"{root}: no such folder; give one that holds a folder of pictures for each class")
    above = _above(root)
    folders = [each for each in root.iterdir() if each.is_dir() and not each.name.startswith(".")]
    classes = sorted(each.name for each in folders if os.path.realpath(each) not in above)
    if not classes:
        raise DataError(f"{root} holds no folders; put the pictures of each class into a folder of its own in it")
    return classes


def _above(root: Path) -> frozenset[str]:
    """The root, and what holds it: a link to one of them leads to every picture again, under another label."""
    real = root.resolve()
    return frozenset(map(str, (real, *real.parents)))


def _pictures(folder: Path, outside: frozenset[str]) -> Iterator[str]:
    """In the order of their paths; links are followed, but never into ``outside`` or a folder that is being read."""
    within = {str(folder): outside | {os.path.realpath(folder)}}
    for where, folders, files in os.walk(folder, followlinks=True):
        above = within.pop(where)
        real = {name: os.path.realpath(Path(where) / name) for name in sorted(folders) if not name.startswith(".")}
        folders[:] = [name for name, target in real.items() if target not in above]
        within.update({str(Path(where) / name): above | {real[name]} for name in folders})
        for name in sorted(files):
            if not name.startswith(".") and os.path.splitext(name)[1].lower() in SUFFIXES:  # noqa: PTH122 a million names
                yield os.path.join(where, name)  # noqa: PTH118
