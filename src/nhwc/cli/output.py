"""Where a report goes: stdout, files, and the progress line on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nhwc.cli.exits import say
from nhwc.errors import TargetError

if TYPE_CHECKING:
    from rich.console import Console

TEXT = "text"
_FORMAT_OF = {".html": "html", ".htm": "html", ".svg": "svg", ".json": "json", ".txt": TEXT}


@dataclass(frozen=True)
class File:
    """One -o: a path and the format it is written in."""

    path: Path
    format: str


def plan_files(paths: Sequence[Path], given: str | None, formats: Sequence[str]) -> list[File]:
    """What to write, checked before any time is spent.

    given: --format, which overrules the endings. Raises TargetError for an unknown format or a path that cannot be
    written.
    """
    if given is not None and given not in formats:
        raise TargetError(f"--format {given!r} is unknown; the formats are {', '.join(formats)}")
    files = []
    for path in paths:
        if path.is_dir():
            raise TargetError(f"-o {path} is a folder; name a file in it, such as {path / 'report.html'}")
        format_ = given or _FORMAT_OF.get(path.suffix.lower())
        if format_ is None or format_ not in formats:
            *most, last = (ending for ending, known in _FORMAT_OF.items() if known in formats and ending != ".htm")
            endings = f"{', '.join(most)} or {last}" if most else last
            raise TargetError(f"-o {path}: its ending names no format; end it in {endings}, or add --format")
        check_writable(path)
        files.append(File(path, format_))
    return files


def check_writable(path: Path, option: str = "-o") -> None:
    """Raise TargetError where a file cannot be written. No command makes its folder: a mistyped path is told."""
    blocking = next((folder for folder in path.parents if folder.is_file()), None)
    if blocking is not None:
        raise TargetError(f"{option} {path} cannot be written: a file stands where the folder {blocking} should be")
    if not path.parent.exists():
        raise TargetError(f"{option} {path}: there is no folder {path.parent}; make it, or correct the path")
    try:
        existed = path.exists()
        with path.open("a", encoding="utf-8"):
            pass
        if not existed:
            path.unlink()
    except OSError as error:
        raise TargetError(f"{option} {path} cannot be written: {error.strerror or error}") from error


def emit(
    render: Callable[[str], str], show: Callable[[Console], None], files: Sequence[File], given: str | None
) -> None:
    """Write a report to every file, and to stdout: text where there are files, else in the format ``given``.

    render: the report in a format. show: prints it to a console, as wide as that is.
    """
    from rich.console import Console

    if files or given in (None, TEXT):
        show(Console())
    else:
        sys.stdout.write(render(given).rstrip("\n") + "\n")
    for file in files:
        try:
            file.path.write_text(render(file.format), encoding="utf-8")
        except OSError as error:
            raise TargetError(f"-o {file.path} cannot be written: {error.strerror or error}") from error
        say(f"wrote {file.path}")


@contextmanager
def progress_line(first: str) -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar on stderr where that is a terminal, nothing elsewhere. Yields what to call: stage, done, total."""
    if not sys.stderr.isatty():
        yield lambda _stage, _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(first, total=None)

        def advance(stage: str, done: int, total: int) -> None:
            bar.update(task, description=stage, completed=done, total=total)

        yield advance
