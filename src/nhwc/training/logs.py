"""Where the records of a run go: lines of text, JSON lines in the run's folder, TensorBoard."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nhwc.errors import TrainingError
from nhwc.training.records import EvaluationRecord, Sink, StepRecord, evaluation_line, step_line
from nhwc.training.settings import TrainSettings
from nhwc.training.spelling import spelled

#: Version of the JSON lines, in the line of kind "start" that every part of a run begins with.
VERSION = 1


class TextLog:
    """Lines of text for ``write``, which gets each without its end."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def note(self, text: str) -> None:
        self._write(text)

    def advance(self, stage: str, done: int, total: int) -> None:
        """Steps between two lines are not told."""

    def step(self, record: StepRecord) -> None:
        self._write(step_line(record))

    def evaluation(self, record: EvaluationRecord) -> None:
        self._write(evaluation_line(record))

    def close(self) -> None:
        """Nothing is held open."""


class JsonLog:
    """JSON objects for ``write``, one a line, each with its "kind": note, step, evaluation.

    JSON has no infinity and no nan: what is no number is null.
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def line(self, kind: str, values: dict[str, Any]) -> None:
        self._write(json.dumps(_finite({"kind": kind, **values}), allow_nan=False))

    def note(self, text: str) -> None:
        self.line("note", {"text": text})

    def advance(self, stage: str, done: int, total: int) -> None:
        """Steps between two lines are not told."""

    def step(self, record: StepRecord) -> None:
        self.line("step", asdict(record))

    def evaluation(self, record: EvaluationRecord) -> None:
        self.line("evaluation", asdict(record))

    def close(self) -> None:
        """Nothing is held open."""


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class JsonFile(JsonLog):
    """The same in a file, each part of a run after a line of kind "start" with its settings and classes.

    update: the step that the run goes on from; lines of later steps are from a run that was cut short, and go.
    Raises TrainingError, then or at any line, where the file cannot be written.
    """

    def __init__(self, path: Path, settings: dict[str, Any], update: int, classes: Sequence[str]) -> None:
        super().__init__(self._append)
        self._path = path
        try:
            if path.exists():
                cut_after(path, update)
            self._file = path.open("a", encoding="utf-8")
        except OSError as error:
            raise self._cannot(error) from error
        self.line("start", {"version": VERSION, "update": update, "settings": settings, "classes": [*classes]})

    def _append(self, line: str) -> None:
        try:
            self._file.write(line + "\n")
            self._file.flush()
        except OSError as error:
            raise self._cannot(error) from error

    def _cannot(self, error: OSError) -> TrainingError:
        return TrainingError(
            f"the log {self._path} cannot be written: {error.strerror or error}; checkpoints are intact"
        )

    def close(self) -> None:
        """Close the file; what could not be written has been told."""
        with contextlib.suppress(OSError):
            self._file.close()


def cut_after(path: Path, update: int) -> None:
    """Drop the first line of a later step than ``update``, and a line that was never finished, with all behind it."""
    kept = 0
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                break
            values = _read(line, path)
            if values["kind"] in ("step", "evaluation") and values["update"] > update:
                break
            kept += len(line)
    with path.open("r+b") as file:
        file.truncate(kept)


def _read(line: bytes, path: Path) -> dict[str, Any]:
    try:
        values = json.loads(line)
        if values["kind"] not in ("step", "evaluation") or isinstance(values["update"], int):
            return dict(values)
    except (ValueError, KeyError, TypeError):
        pass
    raise TrainingError(f"{path} is no log of nhwc train; move it away, or name another folder")


class TensorBoard:
    """Scalars for TensorBoard in ``folder``, over the number of optimizer steps. Raises TrainingError without it."""

    def __init__(self, folder: Path, update: int) -> None:
        if not installed():
            raise TrainingError(
                f"tensorboard is not installed; pip install tensorboard, or leave out {spelled('tensorboard')}"
            )
        from torch.utils.tensorboard import SummaryWriter

        # purge_step hides what a run that was cut short wrote of later steps.
        self._writer: Any = SummaryWriter(str(folder), purge_step=update + 1 if update else None)  # type: ignore[no-untyped-call, unused-ignore]

    def note(self, text: str) -> None:
        """Sentences are for the other logs."""

    def advance(self, stage: str, done: int, total: int) -> None:
        """Steps between two records are not told."""

    def step(self, record: StepRecord) -> None:
        for name in ("loss", "top1", "top5", "images_per_s", "lr"):
            self._writer.add_scalar(f"training/{name}", getattr(record, name), record.update)

    def evaluation(self, record: EvaluationRecord) -> None:
        for name in ("loss", "top1", "top5"):
            self._writer.add_scalar(f"evaluation/{name}", getattr(record, name), record.update)

    def close(self) -> None:
        self._writer.close()


def installed() -> bool:
    """Whether TensorBoard is there."""
    return importlib.util.find_spec("tensorboard") is not None


def open_sinks(settings: TrainSettings, update: int, classes: Sequence[str]) -> list[Sink]:
    """The logs in the run's folder, for a run that goes on from step ``update``; an evaluation alone writes none.

    Raises TrainingError.
    """
    if settings.evaluate_only or settings.folder is None:
        return []
    own: list[Sink] = [JsonFile(settings.folder / "log.jsonl", settings.as_plain(), update, classes)]
    if settings.tensorboard or (settings.tensorboard is None and installed()):
        own.append(TensorBoard(settings.folder / "tensorboard", update))
    return own


class Sinks:
    """Several sinks as one."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = list(sinks)

    def note(self, text: str) -> None:
        for sink in self._sinks:
            sink.note(text)

    def advance(self, stage: str, done: int, total: int) -> None:
        for sink in self._sinks:
            sink.advance(stage, done, total)

    def step(self, record: StepRecord) -> None:
        for sink in self._sinks:
            sink.step(record)

    def evaluation(self, record: EvaluationRecord) -> None:
        for sink in self._sinks:
            sink.evaluation(record)

    def close(self) -> None:
        for sink in self._sinks:
            sink.close()
