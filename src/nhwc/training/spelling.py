"""How settings are called in messages: by their names in TrainSettings, or as whoever asked calls them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType

_NAMES: ContextVar[Mapping[str, str]] = ContextVar("names of settings", default=MappingProxyType({}))


def spelled(setting: str) -> str:
    """What to call a setting of TrainSettings in a message."""
    return _NAMES.get().get(setting, setting)


@contextmanager
def naming(names: Mapping[str, str]) -> Iterator[None]:
    """Messages from inside the block call settings by these names, such as {"max_steps": "--steps"}."""
    token = _NAMES.set(names)
    try:
        yield
    finally:
        _NAMES.reset(token)
