"""Numbers of things, in the words of a run's log."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """A number and its noun, which takes an s for more than one.

    >>> counted(1, "step"), counted(2, "epoch")
    ('1 step', '2 epochs')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
