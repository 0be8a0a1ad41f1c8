"""Lines of a run on any stdout."""

from __future__ import annotations

import io
import sys

import pytest

from nhwc.cli import train_display


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_what_stdout_cannot_encode_is_escaped(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    into = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(into, encoding=encoding))
    with train_display.showing("text") as sinks:
        sinks[0].note("ünï\N{GRINNING FACE}\udcff.jpg")
    shown = "ünï\N{GRINNING FACE}\\udcff.jpg\n"
    assert into.getvalue() == shown.encode(encoding, "backslashreplace")
