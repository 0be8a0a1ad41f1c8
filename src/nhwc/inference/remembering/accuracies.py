"""Errors against float64 that were measured before: for the same model, weights, example and algorithms."""

from __future__ import annotations

from pathlib import Path

import torch

from nhwc.engine_report import Accuracy
from nhwc.inference.remembering.documents import Documents
from nhwc.inference.saving.constants import TYPES, checksum, spanned
from nhwc.inference.specialization import Specialization

_NUMBERS = ("error", "eager_error", "floor")


class Accuracies:
    """Accuracies under a folder, None for nowhere."""

    def __init__(self, where: Path | None) -> None:
        self._documents = Documents(None if where is None else where / "accuracy", "nhwc engine accuracy", 1, 1024)

    def key_of(self, of: Specialization, captured: str | None, threads: int, instruction_set: str) -> str | None:
        """captured: what stands for the model. None where something has no checksum, or nothing is kept."""
        held = [*of.captured.constants.values(), *of.example]
        if self._documents.folder is None or captured is None or not all(map(_is_plain, held)):
            return None
        labels = ";".join(choice.label for choice in of.plans[threads].choices.values())
        contents = checksum([spanned(each.detach()) for each in held])
        return f"{captured} {contents} {labels} {threads} {instruction_set}"

    def get(self, key: str | None) -> Accuracy | None:
        found = None if key is None else self._documents.read(key)
        try:
            numbers = None if found is None else [float(found[name]) for name in _NUMBERS]
            return None if numbers is None else Accuracy(numbers[0], numbers[1], floor=numbers[2])
        except (KeyError, TypeError, ValueError):
            return None

    def put(self, key: str | None, accuracy: Accuracy) -> None:
        """Keep one that holds with the algorithms as they were chosen; others are found out again."""
        if key is not None and accuracy.holds and not accuracy.switched_off and not accuracy.reason:
            self._documents.write(key, {name: getattr(accuracy, name) for name in _NUMBERS})


def _is_plain(tensor: torch.Tensor) -> bool:
    return tensor.dtype in TYPES and tensor.layout is torch.strided and tensor.device.type == "cpu"
