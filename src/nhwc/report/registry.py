"""Report formats by name: a format is one function from a report to text, registered where it is written.

Each kind of report ("audit", "bench", ...) has formats of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from nhwc.errors import RegistryError

if TYPE_CHECKING:
    from collections.abc import Callable


class Renderer(Protocol):
    """A report as text in one format; options are the format's own keyword arguments."""

    def __call__(self, report: Any, **options: Any) -> str: ...


_Function = TypeVar("_Function", bound="Callable[..., str]")
_FORMATS: dict[tuple[str, str], Renderer] = {}


def report_format(name: str, kind: str = "audit") -> Callable[[_Function], _Function]:
    """Register a function as the renderer of the format ``name`` of one kind of report.

    Raises RegistryError where the name is not a lower-case word, or is taken.
    """
    if str(name) != name or not name.isidentifier() or name != name.lower():
        raise RegistryError(f"a report format is named by a lower-case word, got {name!r}")

    def register(function: _Function) -> _Function:
        if (kind, name) in _FORMATS:
            raise RegistryError(f"the report format {name!r} is registered twice; give the second another name")
        _FORMATS[kind, name] = function
        return function

    return register


def formats(kind: str = "audit") -> tuple[str, ...]:
    """Names of the known formats of one kind of report, sorted."""
    return tuple(sorted(name for each, name in _FORMATS if each == kind))


def renderer(name: str, kind: str = "audit") -> Renderer:
    """The renderer of a format. Raises RegistryError naming the known formats where there is none."""
    try:
        return _FORMATS[kind, name]
    except (KeyError, TypeError):
        known = ", ".join(formats(kind))
        raise RegistryError(f"there is no report format {name!r}; the known ones are {known}") from None
