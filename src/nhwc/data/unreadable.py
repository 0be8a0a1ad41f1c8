"""What stands in the place of a sample that cannot be read."""

from __future__ import annotations

from dataclasses import dataclass

from nhwc.errors import printable


@dataclass(frozen=True)
class Unreadable:
    """An item of a data set that cannot be read. name: which one, such as its path; reason: what is wrong with it.

    As text it is one line that can be printed, whatever characters the name has.
    """

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{printable(self.name)}: {printable(self.reason)}"
