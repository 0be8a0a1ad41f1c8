"""The one place where numbers and user strings become text: bytes, milliseconds, percent, paths, counts.

Bytes are decimal (1 MB is 1000 kB), as disks, links and memory bandwidths are quoted. Numbers keep three digits.
"""

from __future__ import annotations

import math
import unicodedata
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nhwc.model import Finding, Source

NOTHING = "–"
_BYTE_UNITS = (("GB", 10**9), ("MB", 10**6), ("kB", 10**3), ("B", 1))
_PACKAGE_FOLDERS = ("site-packages", "dist-packages")
_INVISIBLE = ("Cc", "Cf", "Cs", "Zl", "Zp")
_ASCII = str.maketrans(
    {"…": "...", "–": "-", "±": "+-", "×": "x", "→": "->", "·": "|", "─": "-", "•": "*"}
    | {"│": "|", "├": "[", "┤": "]", "━": "=", "●": "o", "┊": ":"}
)


def bytes_text(count: int | None) -> str:
    """Bytes with a decimal unit.

    >>> bytes_text(41_200_000), bytes_text(512), bytes_text(0), bytes_text(None)
    ('41.2 MB', '512 B', '0 B', '–')
    """
    if count is None:
        return NOTHING
    unit, size = byte_unit(count)
    return f"{_digits(count / size)} {unit}" if size > 1 else f"{count} B"


def ms_text(ms: float | None, spread_ms: float | None = None) -> str:
    """Milliseconds, with their spread (interquartile range) where it is known.

    >>> ms_text(12.34), ms_text(12.34, 0.41), ms_text(0.0002), ms_text(None)
    ('12.3 ms', '12.3 ± 0.4 ms', '<0.001 ms', '–')
    """
    if ms is None or not math.isfinite(ms):
        return NOTHING
    if 0 < ms < 0.001:
        return "<0.001 ms"
    if spread_ms is None:
        return f"{_digits(ms)} ms"
    places = _places(ms)
    return f"{ms:,.{places}f} ± {spread_ms:,.{places}f} ms"


def percent_text(share: float | None) -> str:
    """A share from 0 to 1 as percent.

    >>> percent_text(0.1534), percent_text(0.0412), percent_text(0.0001), percent_text(0.0), percent_text(None)
    ('15 %', '4.1 %', '<0.1 %', '0 %', '–')
    """
    if share is None:
        return NOTHING
    percent = 100 * share
    if 0 < percent < 0.1:
        return "<0.1 %"
    return f"{percent:.1f} %" if 0 < percent < 9.95 else f"{percent:.0f} %"


def byte_unit(count: int) -> tuple[str, int]:
    """The unit in which ``count`` bytes read well, and its size."""
    return next(((unit, size) for unit, size in _BYTE_UNITS if count >= size), _BYTE_UNITS[-1])


def column(values: Sequence[float | None], places: int) -> tuple[list[str], str]:
    """Texts of a column, each rounded by itself, and of its total: the sum of what the rows show.

    Equal values read alike in every row, and whoever adds the rows up gets the total. A value of None is not measured
    and adds nothing.

    >>> column([1.44, 1.44, 1.42], 1)
    (['1.4', '1.4', '1.4'], '4.2')
    """
    units = [None if value is None or not math.isfinite(value) else round(value * 10**places) for value in values]
    known = [unit for unit in units if unit is not None]
    if not known:
        return [NOTHING for _ in values], NOTHING
    texts = [NOTHING if unit is None else f"{unit / 10**places:.{places}f}" for unit in units]
    return texts, f"{sum(known) / 10**places:.{places}f}"


def ms_places(total: float | None) -> int:
    """Decimals of a column of milliseconds with this total."""
    return 1 if total is None else min(3, max(1, _places(total)))


def operator_text(operator: str) -> str:
    """The short name of an operator, from the dispatcher's or from the user's side.

    >>> operator_text("aten.clone.default"), operator_text("aten::instance_norm"), operator_text("roi_align")
    ('clone', 'instance_norm', 'roi_align')
    """
    parts = operator.replace("::", ".").split(".")
    return parts[1] if len(parts) > 1 and parts[1] else operator


def module_text(path: str) -> str:
    """A module path; the model itself has none."""
    return path or "the model itself"


def modules_text(paths: Sequence[str]) -> str:
    """Where several findings are, as a span of module paths in their order.

    >>> modules_text(["stage2.0", "stage2.1", "stage3.0"])
    '3 modules, stage2.0 … stage3.0'
    """
    names = [module_text(path) for path in dict.fromkeys(paths)]
    if len(names) <= 2:
        return " and ".join(names)
    return f"{len(names)} modules, {names[0]} … {names[-1]}"


def source_text(source: Source | None) -> str:
    """A source line as a reader names it: the part of its path below site-packages, or the whole path.

    >>> from nhwc.model import Source
    >>> source_text(Source("/usr/lib/python3.11/site-packages/torchvision/models/shufflenetv2.py", 29))
    'torchvision/models/shufflenetv2.py:29'
    """
    if source is None:
        return "source line unknown"
    parts = PurePath(source.file.replace("\\", "/")).parts
    for folder in _PACKAGE_FOLDERS:
        if folder in parts:
            return f"{'/'.join(parts[parts.index(folder) + 1 :])}:{source.line}"
    return str(source)


def shape_text(shape: Sequence[int]) -> str:
    """A shape or strides: ``(8, 116, 28, 28)``."""
    return f"({', '.join(str(size) for size in shape)})"


def plural(count: int, noun: str, many: str | None = None) -> str:
    """A count and its noun.

    >>> plural(1, "call"), plural(1200, "call"), plural(2, "copy", "copies")
    ('1 call', '1,200 calls', '2 copies')
    """
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"


def shorten(text: str, width: int) -> str:
    """A text of at most ``width`` characters, cut in its middle.

    >>> shorten("backbone.body.layer4.2.conv3", 16)
    'backbon….2.conv3'
    """
    if len(text) <= width:
        return text
    tail = width // 2
    return f"{text[: width - tail - 1]}…{text[len(text) - tail :]}" if width > 2 else text[:width]


def visible(text: str) -> str:
    """A user's string with everything invisible in it escaped: control, direction and unpaired surrogate characters.

    >>> visible("a\\x1b[31m \\u202e b")
    'a\\\\x1b[31m \\\\u202e b'
    """
    return "".join(
        _escaped(character) if unicodedata.category(character) in _INVISIBLE else character
        for character in text.replace("\t", "    ").replace("\n", " ")
    )


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def ascii_text(text: str) -> str:
    """A text for a console that knows only ASCII: the one place where typographic characters are given up.

    >>> ascii_text("12.3 ± 0.4 ms → naïve")
    '12.3 +- 0.4 ms -> na\\\\xefve'
    """
    return text.translate(_ASCII).encode("ascii", "backslashreplace").decode()


@dataclass(frozen=True)
class FindingText:
    """The strings of a finding that came from a user's code, safe to show."""

    operator: str
    module: str
    source: str
    line: str


def finding_text(finding: Finding) -> FindingText:
    """Names and places of a finding as text without invisible characters."""
    return FindingText(
        operator=visible(operator_text(finding.operator)),
        module=visible(module_text(finding.module)),
        source=visible(source_text(finding.source)),
        line=visible(finding.source.text.strip()) if finding.source else "",
    )


def _places(value: float) -> int:
    """Decimals that leave three digits."""
    return max(0, min(3, 2 - math.floor(math.log10(value)))) if value > 0 else 1


def _digits(value: float) -> str:
    text = f"{value:,.{_places(value)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
