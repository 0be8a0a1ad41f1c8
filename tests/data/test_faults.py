"""Samples that cannot be read, data sets that raise, workers that end."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from data.conftest import CLASSES, PER_CLASS
from data.numbered import Numbered, batches

import nhwc
from nhwc.data import ImageFolder, Loader, Unreadable, train_transform

TOTAL = len(CLASSES) * PER_CLASS
pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning"),
]


@pytest.mark.parametrize("workers", [0, 2])
def test_what_cannot_be_read_makes_a_batch_smaller_and_is_told_once(spoilt: Path, workers: int) -> None:
    loader = Loader(ImageFolder(spoilt, train_transform(8)), 4, workers=workers, shuffle=True)
    with pytest.warns(UserWarning, match="cannot be read and is skipped") as told:
        labels = [label for _images, part in loader for label in part.tolist()]
    assert len(told) == len(loader.skipped) == loader.times_skipped == 3
    assert all(each.filename == __file__ for each in told)
    assert len(labels) == TOTAL - 3
    assert loader.skipped[str(spoilt / "cats" / "1.png")] == "it is empty"
    assert sum(len(part) for _images, part in batches(loader, 1)) == TOTAL - 3  # a second warning would fail the test
    assert (len(loader.skipped), loader.times_skipped) == (3, 6)


@pytest.mark.parametrize("workers", [0, 2])
def test_the_next_readable_sample_takes_its_place(workers: int) -> None:
    loader = Loader(Numbered(12, missing=(3, 4, 11)), 4, workers=workers, unreadable="replace")
    with pytest.warns(UserWarning, match="picture"):
        labels = [part for _images, part in batches(loader)]
    assert labels == [[0, 1, 2, 5], [5, 5, 6, 7], [8, 9, 10, 0]]
    assert loader.skipped == {f"picture {number}": "it is missing" for number in (3, 4, 11)}
    assert loader.times_skipped == 4
    whole = batches(Loader(Numbered(12), 4))
    assert torch.equal(batches(loader)[0][0][3], whole[1][0][1])  # it is the picture that it is in its own place


def test_a_batch_of_nothing_is_passed_over_and_counted() -> None:
    loader = Loader(Numbered(6, missing=(2, 3)), 2)
    with pytest.warns(UserWarning, match="picture"):
        assert [labels for _images, labels in batches(loader)] == [[0, 1], [4, 5]]
    assert loader.state_dict()["position"] == 3


def test_a_data_set_of_nothing_is_refused() -> None:
    loader = Loader(Numbered(3, missing=(0, 1, 2)), 2, unreadable="replace")
    with pytest.raises(nhwc.DataError, match="no sample of the data set can be read; the first: picture 0: it is miss"):
        next(iter(loader))


class Raising(Numbered):
    def __getitem__(self, index: int) -> Any:
        found = super().__getitem__(index)
        if isinstance(found, Unreadable):
            raise nhwc.UnreadableImageError(found.name, found.reason)
        return found


@pytest.mark.parametrize("workers", [0, 1])
def test_a_data_set_may_raise_as_well(workers: int) -> None:
    loader = Loader(Raising(4, missing=(1,)), 4, workers=workers)
    with pytest.warns(UserWarning, match="picture 1: it is missing"):
        assert batches(loader)[0][1] == [0, 2, 3]


class Broken(Numbered):
    def __getitem__(self, index: int) -> Any:
        if index == 5:
            raise KeyError("a fault of the data set")
        return super().__getitem__(index)


@pytest.mark.parametrize("workers", [0, 2])
def test_other_faults_are_the_callers_to_see(workers: int) -> None:
    loader = Loader(Broken(), 4, workers=workers)
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(KeyError, match="a fault of the data set"):
        next(iterator)
    assert loader.state_dict()["position"] == 1
    assert next(iter(loader))[1].tolist() == [0, 1, 2, 3]


class Uneven(Numbered):
    def __getitem__(self, index: int) -> Any:
        return torch.zeros(3, 4, 4 + index, dtype=torch.uint8), index


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_of_ours_is_one_sentence_with_workers_too(workers: int) -> None:
    with pytest.raises(
        nhwc.DataError, match=r"^pictures of a batch differ: .* bring them to one size in the transform$"
    ):
        next(iter(Loader(Uneven(), 4, workers=workers)))


def test_a_data_set_that_cannot_be_sent_to_workers_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = Numbered()
    dataset.transform = lambda picture: picture
    monkeypatch.setattr(
        multiprocessing.context._default_context, "_actual_context", multiprocessing.get_context("spawn")
    )
    with pytest.raises(
        nhwc.DataError, match=r"cannot be sent to worker processes .*; define it and its transform at the"
    ):
        next(iter(Loader(dataset, 4, workers=1)))


class Ending(Numbered):
    def __getitem__(self, index: int) -> Any:
        if index == 5:
            os._exit(3)
        return super().__getitem__(index)


def test_a_worker_that_ends_is_named() -> None:
    with pytest.raises(nhwc.DataError, match=r"a worker process of the loader ended .* take fewer workers or smaller"):
        list(Loader(Ending(), 4, workers=1))


def test_after_a_fault_the_workers_end_at_once_and_others_begin() -> None:
    loader = Loader(Broken(), 4, workers=2)
    iterator = iter(loader)
    next(iterator)
    before = loader._source._loader._iterator._workers
    with pytest.raises(KeyError):
        next(iterator)
    assert not any(each.is_alive() for each in before)
    assert next(iter(loader))[1].tolist() == [0, 1, 2, 3]
    loader.close()
