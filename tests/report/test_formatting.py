"""Numbers keep three digits and their unit; nothing invisible of a user's string gets through."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhwc.model import Source
from nhwc.report.formatting import ascii_text, bytes_text, ms_text, percent_text, shorten, source_text, visible


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (1_437_696, "1.44 MB"), (25_700_000, "25.7 MB"), (3 * 10**9, "3 GB")],
)
def test_bytes_are_decimal(count: int, text: str) -> None:
    assert bytes_text(count) == text


@pytest.mark.parametrize(
    ("ms", "spread", "text"),
    [
        (0.0, None, "0 ms"),
        (0.0004, None, "<0.001 ms"),
        (0.0421, None, "0.042 ms"),
        (84.0, None, "84 ms"),
        (1234.5, None, "1,234 ms"),
        (12.34, 0.456, "12.3 ± 0.5 ms"),
        (0.0, 0.3, "0.0 ± 0.3 ms"),
    ],
)
def test_milliseconds(ms: float, spread: float | None, text: str) -> None:
    assert ms_text(ms, spread) == text


@pytest.mark.parametrize(
    ("share", "text"), [(0.15, "15 %"), (0.0994, "9.9 %"), (0.0996, "10 %"), (1.2, "120 %"), (1e-9, "<0.1 %")]
)
def test_percent(share: float, text: str) -> None:
    assert percent_text(share) == text


@given(st.text(st.characters(), max_size=40))
def test_what_is_shown_can_be_seen_and_written(text: str) -> None:
    shown = visible(text)
    assert not any(unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") for character in shown)
    shown.encode("utf-8")
    ascii_text(shown).encode("ascii")


@given(st.text(max_size=60), st.integers(3, 50))
def test_a_shortened_text_keeps_its_ends(text: str, width: int) -> None:
    short = shorten(text, width)
    assert len(short) <= width
    assert short == text or (short[0] == text[0] and short[-1] == text[-1])


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("/home/kim/model.py", "/home/kim/model.py:7"),
        ("C:\\env\\Lib\\site-packages\\timm\\layers\\norm.py", "timm/layers/norm.py:7"),
        ("/usr/lib/python3/dist-packages/net.py", "net.py:7"),
        ("<stdin>", "<stdin>:7"),
    ],
)
def test_source_lines_are_named_from_their_package(file: str, text: str) -> None:
    assert source_text(Source(file, 7)) == text
