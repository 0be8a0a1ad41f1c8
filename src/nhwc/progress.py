"""How the verbs tell what they are at: a function of (stage, done, total)."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]


def quiet(_stage: str, _done: int, _total: int) -> None:
    """Progress for nobody."""
