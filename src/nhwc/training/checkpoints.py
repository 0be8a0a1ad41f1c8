"""Checkpoints in a folder: last.pt, previous.pt and best.pt, each whole at every moment or not there at all."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path
from typing import IO, Any, cast

import torch

from nhwc.errors import CheckpointError
from nhwc.training.spelling import spelled
from nhwc.whole_files import bring_to_disk, sync_folder

#: Version of what a checkpoint holds; one with a higher number comes from a newer nhwc.
VERSION = 1

_KIND = "nhwc training checkpoint"


class Checkpoints:
    """The checkpoints of one run. One process writes; any number may read.

    A new one is written beside the old under another name, brought to the disk, and only then takes the name last.pt;
    the one before stays as previous.pt. So a process that is killed at any moment, and a disk that is full, leave a
    whole checkpoint behind.
    """

    def __init__(self, folder: Path) -> None:
        self.last = folder / "last.pt"
        self.previous = folder / "previous.pt"
        self.best = folder / "best.pt"
        self._folder = folder

    def prepare(self) -> None:
        """Make the folder, and clear away what a killed run left half written. Raises CheckpointError."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            for path in (self.last, self.previous, self.best):
                self._unnamed(path).unlink(missing_ok=True)
        except OSError as error:
            raise CheckpointError(f"{self._folder} cannot hold checkpoints: {error.strerror or error}") from error

    def exist(self) -> bool:
        return self.last.exists() or self.previous.exists()

    def save(self, state: dict[str, Any], *, best: bool) -> None:
        """Write ``state`` as last.pt, and as best.pt too where it is the best. Raises CheckpointError."""
        fresh = self._unnamed(self.last)
        try:
            _write({"kind": _KIND, "version": VERSION, **state}, fresh)
            if self.last.exists():
                self._name_too(self.last, self.previous)
            fresh.replace(self.last)
            if best:
                self._name_too(self.last, self.best)
            sync_folder(self._folder)
        except OSError as error:
            fresh.unlink(missing_ok=True)
            kept = next((path for path in (self.last, self.previous) if path.exists()), None)
            left = "there is none before it" if kept is None else f"{kept} is intact"
            raise CheckpointError(
                f"the checkpoint {self.last} cannot be written: {error.strerror or error}; {left}; "
                f"make room and go on from there with {spelled('resume')}"
            ) from error

    def _unnamed(self, path: Path) -> Path:
        return self._folder / f".{path.name}.tmp"

    def _name_too(self, path: Path, name: Path) -> None:
        """Give the file ``path`` the name ``name`` as well, in one moment; copies where files have one name only."""
        fresh = self._unnamed(name)
        fresh.unlink(missing_ok=True)
        try:
            os.link(path, fresh)
        except OSError:
            with fresh.open("wb") as target, path.open("rb") as source:
                shutil.copyfileobj(source, target)
                bring_to_disk(target)
        fresh.replace(name)

    def load(self) -> tuple[dict[str, Any], Path, str]:
        """The newest readable checkpoint, its path, and a sentence where that is not last.pt (else empty).

        Raises CheckpointError where none can be read.
        """
        said = ""
        for path in (self.last, self.previous):
            if path.exists():
                try:
                    return read(path), path, said
                except CheckpointError as error:
                    said = f"{error}; going on from {self.previous}"
        raise CheckpointError(said.partition(";")[0] or f"{self._folder} holds no checkpoint")


def read(path: Path) -> dict[str, Any]:
    """The checkpoint at ``path``, on the CPU; nothing in it can run code. Raises CheckpointError."""
    if path.is_dir():
        raise CheckpointError(f"{path} is a folder; give a checkpoint in it, such as {path / 'last.pt'}")
    try:
        _require_whole(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise CheckpointError(f"there is no checkpoint {path}") from error
    except Exception as error:  # a damaged file fails in as many ways as pickle and zip have
        first = str(error).strip().partition("\n")[0]
        raise CheckpointError(f"{path} cannot be read as a checkpoint: {type(error).__name__}, {first}") from error
    if not isinstance(state, dict) or state.get("kind") != _KIND:
        raise CheckpointError(f"{path} is no checkpoint of nhwc train; give one that it wrote, such as last.pt")
    if state["version"] > VERSION:
        raise CheckpointError(f"{path} comes from a newer nhwc; update nhwc to read it")
    return state


def _require_whole(path: Path) -> None:
    """Raise BadZipFile where a part of the file is not what was written: torch reads flipped bits as numbers."""
    with zipfile.ZipFile(path) as held:
        damaged = held.testzip()
    if damaged is not None:
        raise zipfile.BadZipFile(f"its part {damaged} is damaged")


def _write(state: dict[str, Any], path: Path) -> None:
    """torch.save to the disk itself; a failure to write is the OSError it was, whatever torch makes of it."""
    with path.open("wb") as file:
        writer, checksums = _Remembering(file), torch.serialization.get_crc32_options()
        torch.serialization.set_crc32_options(True)  # `read` asks for them
        try:
            torch.save(state, cast(IO[bytes], writer))
        except Exception:
            if writer.failed is not None:
                raise writer.failed from None
            raise
        finally:
            torch.serialization.set_crc32_options(checksums)
        bring_to_disk(file)


class _Remembering:
    """A file for torch.save that remembers why writing failed: torch's own error does not say."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.failed: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            return self._file.write(data)
        except OSError as error:
            self.failed = error
            raise

    def flush(self) -> None:
        try:
            self._file.flush()
        except OSError as error:
            self.failed = error
            raise
