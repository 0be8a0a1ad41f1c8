"""Exit codes, and how a failure becomes one sentence on stderr."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

import typer

from nhwc.errors import NhwcError


class ExitCode(IntEnum):
    """What the shell learns from a run."""

    FINE = 0
    CONDITION_HOLDS = 1
    BAD_INPUT = 2
    INTERNAL_FAULT = 3
    INTERRUPTED = 130
    CLOSED_PIPE = 141


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
        sys.stdout.flush()  # a reader that has left shows here, not when Python flushes at exit
    except typer.Exit:
        raise
    except KeyboardInterrupt as error:
        _leave(ExitCode.INTERRUPTED, "interrupted", error, debug)
    except BrokenPipeError as error:
        # Whoever read the output has left; Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(ExitCode.CLOSED_PIPE) from error
    except NhwcError as error:
        _leave(ExitCode.BAD_INPUT, str(error), error, debug)
    except Exception as error:  # noqa: BLE001 - the border of the program: nothing may pass it as a traceback
        text = (
            f"a fault in nhwc itself, {type(error).__name__}: {one_line(error)}; run again with --debug and report it"
        )
        _leave(ExitCode.INTERNAL_FAULT, text, error, debug)


def _leave(code: ExitCode, message: str, error: BaseException, debug: bool) -> None:
    if debug:
        traceback.print_exception(error)
    say(message)
    raise typer.Exit(code) from error
