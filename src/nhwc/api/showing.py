"""What every report can do: render itself, save itself in the format of a suffix, print as text."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from nhwc import report as reports  # noqa: F401 its formats register themselves
from nhwc.errors import RegistryError
from nhwc.report.registry import formats, renderer

_SUFFIXES = {".html": "html", ".json": "json", ".txt": "text"}


class Showing:
    """A report that shows itself in the registered formats of its kind."""

    _kind: ClassVar[str]

    def render(self, format: str = "text", **options: Any) -> str:  # noqa: A002 the public word for it
        """The report as "text", "html" or "json"; RegistryError names the formats there are."""
        return renderer(format, self._kind)(self, **options)

    def save(self, path: str | Path) -> Path:
        """Write the report to ``path``, in the format of its suffix: .html, .json or .txt; RegistryError for others."""
        path = Path(path)
        name = _SUFFIXES.get(path.suffix)
        if name not in formats(self._kind):
            known = ", ".join(suffix for suffix, each in _SUFFIXES.items() if each in formats(self._kind))
            raise RegistryError(f"no format is known for {path.name!r}; end it in {known}")
        path.write_text(self.render(name), encoding="utf-8")
        return path

    def __str__(self) -> str:
        return self.render("text")
