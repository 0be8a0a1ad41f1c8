"""Exit codes, and how a failure becomes one sentence on stderr."""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import NoReturn

import typer

from nhwc.errors import ModelError, NhwcError, TargetError
from nhwc.model import Source

_SITE = ("site-packages", "dist-packages")


class ExitCode(IntEnum):
    """What the shell learns from a run."""

    FINE = 0
    CONDITION_HOLDS = 1
    BAD_INPUT = 2
    INTERNAL_FAULT = 3
    INTERRUPTED = 130
    CLOSED_PIPE = 141


class RaisingTargetError(TargetError):
    """The user's own code raised while the target was built; the original exception is the cause."""


def one_line(error: BaseException | str) -> str:
    """The text of an error on one line: many exceptions of torch carry a page."""
    return " ".join(str(error).split())


def say(message: str) -> None:
    """One line on stderr."""
    print(f"nhwc: {one_line(message)}", file=sys.stderr)  # noqa: T201 - this is the command's voice


@contextmanager
def one_sentence(debug: bool) -> Iterator[None]:
    """Run a command so that every failure ends in one sentence and an exit code; ``debug`` adds the traceback."""
    try:
        yield
        if sys.stdout is not None:  # it was closed before we began
            sys.stdout.flush()  # a reader that has left shows here, not when Python flushes at exit
    except typer.Exit:
        raise
    except KeyboardInterrupt as error:
        _leave(ExitCode.INTERRUPTED, "interrupted", error, debug)
    except BrokenPipeError as error:
        _leave_closed_pipe(error)
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # how rich's console leaves a closed pipe
            _leave_closed_pipe(error)
        text = f"the model raised SystemExit: {error}"
        _leave(ExitCode.BAD_INPUT, _with_place(text, error, debug), error, debug)
    except (ModelError, RaisingTargetError) as error:
        _leave(ExitCode.BAD_INPUT, _with_place(str(error), error.__cause__, debug), error, debug)
    except NhwcError as error:
        _leave(ExitCode.BAD_INPUT, str(error), error, debug)
    except OSError as error:
        _leave(ExitCode.BAD_INPUT, f"the report cannot be written: {error.strerror or error}", error, debug)
    except Exception as error:  # noqa: BLE001 - the border of the program: nothing may pass it as a traceback
        text = (
            f"a fault in nhwc itself, {type(error).__name__}: {one_line(error)}; run again with --debug and report it"
        )
        _leave(ExitCode.INTERNAL_FAULT, text, error, debug)


def _leave_closed_pipe(error: BaseException) -> NoReturn:
    """Whoever read the output has left; Python would complain once more when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise typer.Exit(ExitCode.CLOSED_PIPE) from error


def _with_place(message: str, error: BaseException | None, debug: bool) -> str:
    """``message`` with the user's line that led to ``error``, and with the way to the traceback."""
    text = one_line(message).rstrip(".")
    place = "" if error is None else users_line(error)
    if place:
        text += f" ({place})"
    return text if debug else f"{text}; --debug shows the traceback"


def users_line(error: BaseException) -> str:
    """``file:line`` of the innermost line in a traceback that is neither torch's, nor ours, nor the standard library's;
    empty where there is none.
    """
    from nhwc.report.formatting import source_text

    torch = importlib.util.find_spec("torch")
    foreign = [Path(__file__).parent.parent]
    if torch is not None and torch.origin is not None:
        foreign.append(Path(torch.origin).parent)
    standard = Path(sysconfig.get_paths()["stdlib"])
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        is_standard = path.is_relative_to(standard) and not any(folder in path.parts for folder in _SITE)
        if frame.filename.startswith("<") or is_standard or any(path.is_relative_to(folder) for folder in foreign):
            continue
        here = path.resolve()
        near = here.relative_to(Path.cwd()) if here.is_relative_to(Path.cwd()) else path
        is_installed = any(folder in path.parts for folder in _SITE)
        return source_text(Source(str(path if is_installed else near), frame.lineno or 0))
    return ""


def _leave(code: ExitCode, message: str, error: BaseException, debug: bool) -> None:
    if debug:
        traceback.print_exception(error)
    say(message)
    raise typer.Exit(code) from error
