"""A capture that fails leaves the error alone on stderr; one that succeeds loses nothing."""

from __future__ import annotations

import logging
import sys
import threading

import pytest

from nhwc.inference.held_back import held_back


def test_lines_follow_where_the_block_succeeds(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stderr
    with held_back():
        sys.stderr.write("mine\n")
        other = threading.Thread(target=lambda: sys.stderr.write("another's\n"))
        other.start()
        other.join()
        assert capsys.readouterr().err == "another's\n"
    assert capsys.readouterr().err == "mine\n"
    assert sys.stderr is before


def test_lines_are_dropped_where_it_fails(capsys: pytest.CaptureFixture[str]) -> None:
    logger, before = logging.getLogger("torch.export"), sys.stderr

    def fails() -> None:
        with held_back():
            assert logger.disabled
            sys.stderr.write("the graph so far\n")
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fails()
    assert capsys.readouterr().err == ""
    assert not logger.disabled
    assert sys.stderr is before
