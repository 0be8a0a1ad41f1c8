"""What one rank raises while the run is made ends all ranks, each with a sentence and the right kind of error."""

from __future__ import annotations

from typing import Any

import pytest

from nhwc.errors import DataError, TrainingError
from nhwc.training import ranks


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What rank 1 tells; this process is rank 0."""
    told: list[Any] = []
    monkeypatch.setattr(ranks, "several", lambda: True)
    monkeypatch.setattr(ranks, "everyones", lambda own: [own, *told])
    return told


def test_what_failed_here_is_raised_here(others: list[Any]) -> None:
    others.append((True, "DataError: gone", "gone"))
    with pytest.raises(DataError, match=r"^no pictures$"), ranks.failing_together():
        raise DataError("no pictures")


def test_what_failed_elsewhere_is_raised_with_the_rank(others: list[Any]) -> None:
    others.append((True, "DataError: gone", "gone"))
    with pytest.raises(TrainingError, match=r"^rank 1 ended the run: gone$"), ranks.failing_together():
        pass


def test_a_fault_elsewhere_is_one_here(others: list[Any]) -> None:
    others.append((False, "KeyError: 'weights'", "'weights'"))
    with pytest.raises(RuntimeError, match=r"^rank 1 ended the run: KeyError: 'weights'$"), ranks.failing_together():
        pass


def test_nothing_failed(others: list[Any]) -> None:
    others.append(None)
    with ranks.failing_together():
        pass
