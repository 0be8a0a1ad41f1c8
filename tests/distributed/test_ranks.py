"""The checks that need several ranks, on two and on four processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from distributed.ranks import checks_in, run

FILES = ("training",)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("two")


@pytest.fixture(scope="module")
def two(folder: Path) -> dict[str, list[str]]:
    return run(checks_in(*FILES), folder, 2)


@pytest.mark.parametrize("check", checks_in(*FILES))
def test_on_two_ranks(check: str, two: dict[str, list[str]]) -> None:
    assert two[check] == ["", ""], "\n".join(two[check])
