"""What a training run is asked to do, checked as soon as it is written down."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import NoneType
from typing import Any

from nhwc.errors import TrainingError
from nhwc.training.spelling import spelled

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

#: The most seconds that a run may measure before it begins.
MOST_MEASURED_S = 600

#: What each setting that is a word may be.
WORDS: dict[str, tuple[str, ...]] = {
    "channels_last": ("auto", "true", "false"),
    "amp": ("bf16", "fp16"),
    "optimizer": ("sgd", "adamw"),
    "schedule": ("cosine", "step", "constant"),
}
#: Settings that must be at least this much.
_AT_LEAST: dict[str, float] = {
    **dict.fromkeys("epochs batch accumulate size decay_every max_steps samples print_every save_every".split(), 1),
    **dict.fromkeys("workers seed measure_s warmup_epochs momentum weight_decay lr".split(), 0),
    "classes": 2,
}
#: Settings that are numbers with a fraction; all others are whole.
_FRACTIONS = "measure_s warmup_epochs momentum weight_decay lr".split()
#: The most that a setting may be: what 32 bits hold, but for these.
_AT_MOST: dict[str, float] = {
    **dict.fromkeys(_FRACTIONS, sys.float_info.max),
    "seed": 2**63 - 1,
    "workers": 1024,
    "measure_s": MOST_MEASURED_S,
}
_MOST_WHOLE = 2**31 - 1
_MAY_BE_NONE = ("size", "max_steps", "save_every")
#: Of what types the other settings are, and in words.
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    **dict.fromkeys("augment compile evaluate_only fsdp sync_batch_norm".split(), ((bool,), "True or False")),
    **dict.fromkeys(("kernels", "tensorboard"), ((bool, NoneType), "True, False or None")),
    **dict.fromkeys(("mean", "std"), ((tuple, list, NoneType), "a tuple with a number per channel, or None")),
    "resume": ((bool, Path), "True, False or the path of a checkpoint"),
    "folder": ((Path, NoneType), "a path or None"),
    "evaluate": ((str, Path, NoneType), "a path or None"),
    "arch": ((str, NoneType), "a name or None"),
}


@dataclass(frozen=True)
class TrainSettings:
    """Settings of one run of ``nhwc.train``. Raises TrainingError, naming the setting, for what makes no sense.

    data: a folder of class folders, or one that holds train/ and val/; a .npz file of uint8 images; or "synthetic".
    arch: what the model is called in checkpoints, in the log and in messages; it builds nothing.
    folder: where checkpoints and the log go; None keeps nothing.
    batch: images per process and step; accumulate: batches of that size per optimizer step.
    size: pixels of a side that images are cropped to; None: what the arrays have, or 224.
    samples, classes: of synthetic data.
    evaluate: a folder or .npz to evaluate on, where DATA has none of its own; augment: random crops and flips.
    mean, std: per channel, of images scaled to 0 to 1; None: ImageNet's for three channels, else 0.5.
    max_steps: end after so many optimizer steps, epochs notwithstanding.
    channels_last: "true", "false" (contiguous from the loader on) or "auto": true where the model has convolutions,
    unless training steps on copies of it, measured within about measure_s seconds, prove it slower; 0 measures nothing.
    kernels: nhwc's kernels on; None: in channels last, unless compiled. compile: torch.compile.
    amp: "bf16" or "fp16" (with loss scaling).
    lr: of the schedule's top; warmup_epochs: it rises linearly to there first. decay_every: epochs between two steps
    of the schedule "step", each by the factor decay.
    ema: the share of the average that stays at each step, such as 0.999; the average is then what is evaluated.
    save_every: optimizer steps between checkpoints, besides the one after each epoch. print_every: between log lines.
    resume: go on from the last checkpoint in ``folder``, or from this file; without one in the folder, start.
    evaluate_only: no training: evaluate what ``resume`` names.
    tensorboard: None: where it is installed. fsdp: shard parameters instead of copying them. sync_batch_norm: batch
    statistics over all processes.
    """

    data: str
    folder: Path | None = None
    epochs: int = 90
    batch: int = 32
    accumulate: int = 1
    workers: int = 0
    size: int | None = None
    samples: int = 1280
    classes: int = 1000
    evaluate: str | None = None
    augment: bool = True
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    max_steps: int | None = None
    channels_last: str = "auto"
    measure_s: float = 20.0
    kernels: bool | None = None
    compile: bool = False
    amp: str | None = None
    optimizer: str = "sgd"
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 1e-4
    schedule: str = "cosine"
    warmup_epochs: float = 0.0
    decay_every: int = 30
    decay: float = 0.1
    label_smoothing: float = 0.0
    ema: float | None = None
    seed: int = 0
    device: str = "cpu"
    save_every: int | None = None
    print_every: int = 10
    resume: bool | Path = False
    evaluate_only: bool = False
    tensorboard: bool | None = None
    fsdp: bool = False
    sync_batch_norm: bool = False
    arch: str | None = None

    def __post_init__(self) -> None:
        self._take_data()
        for name in ("folder", "resume"):  # a path may come as text
            if isinstance(getattr(self, name), str):
                object.__setattr__(self, name, Path(getattr(self, name)))
        object.__setattr__(self, "device", str(self.device))  # it may come as torch.device
        for name, (kinds, wanted) in _KINDS.items():
            if not isinstance(getattr(self, name), kinds):
                raise TrainingError(f"{spelled(name)} is {getattr(self, name)!r}; it must be {wanted}")
        for name, words in WORDS.items():
            self._require_word(name, words)
        for name, least in _AT_LEAST.items():
            self._require_number(name, least)
        self._require_shares()
        self._require_together()

    def _take_data(self) -> None:
        given: object = self.data
        if isinstance(given, Path):
            object.__setattr__(self, "data", str(given))
        elif not isinstance(given, str):
            raise TrainingError(
                f"{spelled('data')} is of type {type(given).__name__}; it must be a folder, a .npz file or "
                "'synthetic'; for a Dataset of your own, write a loop with nhwc.data.Loader"
            )

    def _require_word(self, name: str, words: Sequence[str]) -> None:
        value = getattr(self, name)
        optional = next(field.default for field in fields(self) if field.name == name) is None
        if not (value in words or (value is None and optional)):
            raise TrainingError(f"{spelled(name)} {value!r} is unknown; use {', '.join(words[:-1])} or {words[-1]}")

    def _require_number(self, name: str, least: float) -> None:
        value = getattr(self, name)
        if value is None and name in _MAY_BE_NONE:
            return
        whole = name not in _FRACTIONS
        most = _AT_MOST.get(name, _MOST_WHOLE)
        kinds = (int,) if whole else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value <= most:
            kind = "a whole number" if whole else "a finite number"
            bound = f"of at least {least}" + (f" and at most {most}" if most < sys.float_info.max else "")
            raise TrainingError(f"{spelled(name)} is {value!r}; it must be {kind} {bound}")

    def _require_shares(self) -> None:
        for name, low, high in (("label_smoothing", 0, 1), ("ema", 0, 1), ("decay", 0, 1)):
            value = getattr(self, name)
            if name == "ema" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value < high:
                raise TrainingError(f"{spelled(name)} is {value}; it must be at least {low} and less than {high}")
        for name, least in (("mean", "at least"), ("std", "above")):
            values = getattr(self, name)
            if values is not None and not (values and all(_is_share(each, name == "mean") for each in values)):
                raise TrainingError(
                    f"{spelled(name)} is {values}; give a number per channel, of images scaled to 0 to 1: "
                    f"{least} 0 and at most 1"
                )

    def _require_together(self) -> None:
        if self.kernels and self.compile:
            raise TrainingError(
                f"nhwc's kernels step aside under torch.compile; leave out {spelled('kernels')} or {spelled('compile')}"
            )
        if self.kernels and self.channels_last == "false":
            raise TrainingError(
                f"nhwc's kernels serve channels last alone; leave out {spelled('kernels')}, or "
                f"{spelled('channels_last')} false"
            )
        if self.warmup_epochs > self.epochs:
            raise TrainingError(
                f"{spelled('warmup_epochs')} is {self.warmup_epochs}, more than {spelled('epochs')}, {self.epochs}"
            )
        if self.folder is None and (self.resume is True or self.save_every is not None):
            raise TrainingError(
                f"{spelled('resume')} and {spelled('save_every')} need a folder with checkpoints; name one as "
                f"{spelled('folder')}"
            )
        if self.folder is None and self.tensorboard and not self.evaluate_only:
            raise TrainingError(f"{spelled('tensorboard')} needs a folder to write to; name one as {spelled('folder')}")
        if self.evaluate_only and not self.resume:
            raise TrainingError(
                f"{spelled('evaluate_only')} needs a checkpoint to evaluate; name it as {spelled('resume')}"
            )

    def as_plain(self) -> dict[str, Any]:
        """Numbers, words and lists only, for checkpoints and logs."""
        plain = asdict(self)
        return {
            key: str(value) if isinstance(value, Path) else list(value) if isinstance(value, tuple) else value
            for key, value in plain.items()
        }


def _is_share(value: object, zero: bool) -> bool:
    return isinstance(value, int | float) and (0 < value <= 1 or (zero and value == 0))
