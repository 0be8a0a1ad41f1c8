"""What is not collected, and what reproducing files look for: operators' Python kernels, among all known objects."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

#: Registers operators, which a second import, to look for doctests, would register again.
collect_ignore = ["planted.py"]


@pytest.fixture(scope="module", autouse=True)
def everything_in_sight() -> Iterator[None]:
    """What imports made, which the whole run's conftest took out of the collector's sight, is seen here."""
    gc.unfreeze()
    yield
    gc.freeze()
