"""The progress line: on a terminal only."""

import io
import sys

import pytest

from nhwc.cli.output import progress_line


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("stream", "quiet"), [(io.StringIO(), True), (Terminal(), False)])
def test_progress_shows_on_a_terminal_and_not_in_a_pipe(
    stream: io.StringIO, quiet: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", stream)
    with progress_line("building") as progress:
        progress("timing", 1, 2)
    assert (stream.getvalue() == "") is quiet
    assert ("timing" in stream.getvalue()) is not quiet
