"""The loader: what it hands out, in which order, and from where it goes on."""

from __future__ import annotations

import collections
import multiprocessing
import os
import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from data.conftest import CLASSES, PER_CLASS

import nhwc
from nhwc.data import ImageFolder, Loader, Synthetic, Unreadable, eval_transform, normalize, train_transform

TOTAL = len(CLASSES) * PER_CLASS
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning"),
]


class Numbered(torch.utils.data.Dataset):
    """Pictures of their own index and of noise from three generators; ``asked`` holds what was asked for."""

    def __init__(self, length: int = 22, missing: tuple[int, ...] = ()) -> None:
        self.length, self.missing = length, missing
        self.asked: list[int] = []

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        self.asked.append(index)
        if index in self.missing:
            return Unreadable(f"picture {index}", "it is missing")
        picture = torch.full((4, 5, 3), index, dtype=torch.uint8, device="cpu")
        picture[0, 0] = torch.randint(0, 256, (3,), dtype=torch.uint8, device="cpu")
        picture[1, 0, 0] = random.randrange(256)
        picture[2, 0, 0] = np.random.randint(256)
        return picture.permute(2, 0, 1), index


def batches(loader: Loader, epoch: int = 0) -> list[tuple[torch.Tensor, list[int]]]:
    loader.set_epoch(epoch)
    return [(images.clone(), labels.tolist()) for images, labels in loader]


def same(first: list[Any], second: list[Any]) -> bool:
    return len(first) == len(second) and all(
        torch.equal(one[0], two[0]) and one[1] == two[1] for one, two in zip(first, second, strict=True)
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_in_channels_last_and_normalised(folder: Path, workers: int) -> None:
    dataset = ImageFolder(folder, train_transform(24))
    plain = Loader(dataset, 5, shuffle=True, workers=workers)
    loader = Loader(dataset, 5, shuffle=True, workers=workers, mean=MEAN, std=STD, dtype=torch.bfloat16)
    assert len(loader) == len(plain) == -(-TOTAL // 5)
    seen = 0
    for (images, labels), (normalised, again) in zip(plain, loader, strict=True):
        assert images.dtype == torch.uint8
        assert normalised.dtype == torch.bfloat16
        for each in (images, normalised):
            assert each.stride() == nhwc.strides_for(each.shape, "channels_last")
        assert torch.equal(normalised, normalize(images, MEAN, STD, torch.bfloat16))
        assert torch.equal(labels, again)
        seen += len(labels)
    assert seen == TOTAL


def test_batches_do_not_depend_on_workers_nor_on_the_callers_numbers() -> None:
    def shown(workers: int, seed: int, epoch: int = 0) -> list[Any]:
        return batches(Loader(Numbered(), 4, shuffle=True, seed=seed, workers=workers), epoch)

    wanted = shown(0, 7)
    torch.manual_seed(99)
    random.seed(99)
    for workers in (0, 1, 2):
        assert same(shown(workers, 7), wanted)
    assert not same(shown(0, 8), wanted)
    assert not same(shown(0, 7, epoch=1), wanted)
    assert same(shown(2, 7, epoch=1), shown(0, 7, epoch=1))


@pytest.mark.parametrize("workers", [0, 2])
def test_the_callers_random_state_stays_as_it_is(workers: int) -> None:
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    loader = Loader(Numbered(), 4, shuffle=True, workers=workers)
    for _ in range(2):
        for _images, _labels in loader:
            assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert np.random.get_state()[1].tolist() == before[2]


@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_together_are_one_process(world_size: int) -> None:
    alone = batches(Loader(Numbered(24), 2 * world_size, shuffle=True, drop_last=True))
    ranks = [
        batches(Loader(Numbered(24), 2, shuffle=True, drop_last=True, rank=rank, world_size=world_size))
        for rank in range(world_size)
    ]
    for number, (images, labels) in enumerate(alone):
        joined = torch.stack([each[number][0] for each in ranks], 1).flatten(0, 1)
        assert torch.equal(joined, images)
        assert [label for pair in zip(*(each[number][1] for each in ranks), strict=True) for label in pair] == labels


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("stop", [0, 1, 3, 6])
def test_it_goes_on_where_a_state_was_taken(workers: int, stop: int) -> None:
    whole = batches(Loader(Numbered(), 4, shuffle=True, seed=3), 5)
    first = Loader(Numbered(), 4, shuffle=True, seed=3, workers=workers)
    first.set_epoch(5)
    handed_out = []
    state = first.state_dict()
    for images, labels in first:
        if len(handed_out) == stop:
            break
        handed_out.append((images.clone(), labels.tolist()))
        state = first.state_dict()
    assert same(handed_out, whole[:stop])
    assert (state["epoch"], state["position"]) == (5, stop)
    assert all(type(value) is int for value in state.values())

    second = Loader(Numbered(), 4, shuffle=True, seed=3, workers=workers)
    second.load_state_dict(state)
    assert second.epoch == 5
    assert second.state_dict() == state
    second.set_epoch(5)  # as a training loop says at the start of every epoch
    assert same([(images.clone(), labels.tolist()) for images, labels in second], whole[stop:])
    if workers == 0:
        assert sorted(second.dataset.asked) == sorted(label for _images, labels in whole[stop:] for label in labels)
    assert same(batches(second, 6), batches(Loader(Numbered(), 4, shuffle=True, seed=3), 6))


def test_a_state_at_the_end_of_an_epoch_leaves_nothing_of_it() -> None:
    loader = Loader(Numbered(), 4)
    batches(loader)
    state = loader.state_dict()
    assert state["position"] == len(loader) == 6
    loader.load_state_dict(state)
    assert list(loader) == []
    assert len(list(loader)) == 6  # asked again, it begins again


def test_another_epoch_or_iteration_begins_at_the_start() -> None:
    loader = Loader(Numbered(), 4, shuffle=True)
    for _ in zip(loader, range(2), strict=False):
        pass
    assert loader.state_dict()["position"] == 3  # zip asks for one more
    loader.set_epoch(1)
    assert loader.state_dict()["position"] == 0
    assert len(batches(loader, 1)) == 6
    assert len(batches(loader, 1)) == 6


def test_a_state_is_read_by_another_number_of_ranks_and_batches() -> None:
    loader = Loader(Numbered(24), 2, shuffle=True, rank=0, world_size=2)
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
    state = loader.state_dict()  # 3 batches of 4
    whole = batches(Loader(Numbered(24), 4, shuffle=True))
    for options in ({"batch_size": 4}, {"batch_size": 1, "world_size": 4}):
        other = Loader(Numbered(24), shuffle=True, **options)
        other.load_state_dict(state)
        assert next(iter(other))[1].tolist() == whole[3][1][:: options.get("world_size", 1)]
    wider = Loader(Numbered(24), 6, shuffle=True)
    wider.load_state_dict(state)
    assert wider.state_dict()["position"] == 2
    whole_wide = batches(Loader(Numbered(24), 6, shuffle=True))
    assert same(batches(wider), whole_wide[2:])
    with pytest.raises(
        nhwc.DataError, match=r"12 samples of the epoch .* no whole number of batches of 5; take the batch"
    ):
        Loader(Numbered(24), 5, shuffle=True).load_state_dict(state)
    done = {**state, "position": 6}
    fresh = Loader(Numbered(24), 5, shuffle=True)
    fresh.load_state_dict(done)
    assert list(fresh) == []


def test_a_state_of_something_else_is_refused_and_changes_nothing() -> None:
    loader = Loader(Numbered(), 4, shuffle=True, seed=1)
    before = loader.state_dict()
    for other, said in {
        "seed": "the state was saved with seed=0, this Loader has seed=1",
        "length": "saved with length=21, this Loader has length=22",
        "shuffle": "saved with shuffle=0, this Loader has shuffle=1",
    }.items():
        state = {**before, "position": 2, other: before[other] - 1}
        with pytest.raises(nhwc.DataError, match=said):
            loader.load_state_dict(state)
    with pytest.raises(nhwc.DataError, match=r"no state of a Loader: global_batch, length, .* missing"):
        loader.load_state_dict({"epoch": 1, "position": 2})
    assert loader.state_dict() == before


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


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_may_start_in_any_way(method: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = ImageFolder(folder, train_transform(8))
    wanted = batches(Loader(dataset, 5, shuffle=True))
    monkeypatch.setattr(
        multiprocessing.context._default_context, "_actual_context", multiprocessing.get_context(method)
    )
    loader = Loader(dataset, 5, shuffle=True, workers=1)
    assert same(batches(loader), wanted)
    loader.close()


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


@pytest.mark.parametrize("workers", [0, 2])
def test_two_iterations_of_one_loader_do_not_mix(workers: int) -> None:
    loader = Loader(Numbered(), 4, workers=workers)
    first = iter(loader)
    next(first)
    second = iter(loader)
    assert next(second)[1].tolist() == [0, 1, 2, 3]
    with pytest.raises(nhwc.DataError, match="ended when another one of the same Loader began"):
        next(first)
    assert next(second)[1].tolist() == [4, 5, 6, 7]


def test_workers_live_on_and_end_with_close() -> None:
    loader = Loader(Numbered(), 4, workers=1)
    batches(loader)
    (worker,) = loader._source._loader._iterator._workers
    batches(loader, 1)
    assert worker.is_alive()
    loader.close()
    worker.join(20)
    assert not worker.is_alive()
    with pytest.raises(nhwc.DataError, match="was closed; make another one"):
        next(iter(loader))


@pytest.mark.parametrize("workers", [0, 1])
def test_another_default_device_changes_nothing(folder: Path, workers: int) -> None:
    def shown() -> list[Any]:
        made = Synthetic(12, (3, 40, 40), 3, transform=train_transform(8))
        loaders = [Loader(each, 4, shuffle=True, workers=workers, mean=0.5, std=0.5) for each in (made, Numbered())]
        found = [batch for loader in loaders for batch in batches(loader)]
        found += batches(Loader(ImageFolder(folder, eval_transform(8)), 4))
        return found

    wanted = shown()
    with torch.device("meta"):
        assert same(shown(), wanted)


Pair = collections.namedtuple("Pair", "image label")


def test_samples_of_every_kind() -> None:
    class Wrapped(Numbered):
        def __init__(self, wrap: Any) -> None:
            super().__init__(4)
            self.wrap = wrap

        def __getitem__(self, index: int) -> Any:
            return self.wrap(*super().__getitem__(index))

    def first(wrap: Any, **options: Any) -> Any:
        return next(iter(Loader(Wrapped(wrap), 4, **options)))

    normalised = {"mean": 0.5, "std": 0.5}
    assert first(lambda image, label: image, **normalised).dtype == torch.float32
    assert first(lambda image, label: (image, label, {"id": label}), **normalised)[2]["id"].tolist() == [0, 1, 2, 3]
    pair = first(Pair, **normalised)
    assert isinstance(pair, Pair)
    assert pair.image.dtype == torch.float32
    assert first(lambda image, label: {"image": image, "label": label})["image"].dtype == torch.uint8
    with pytest.raises(nhwc.DataError, match="mean and std need samples that are a picture, or a tuple with a picture"):
        first(lambda image, label: {"image": image}, **normalised)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"workers": -1}, "workers=-1, prefetch=2: expected at least 0 and 1"),
        ({"unreadable": "skip"}, "unreadable='skip': expected one of drop, replace"),
        ({"mean": 0.5}, "mean and std normalise together; give both or neither"),
        ({"dtype": torch.int8}, "dtype=torch.int8: expected one of torch.float32"),
        ({"device": "gpu"}, "device='gpu'"),
        ({"dataset": iter([1])}, "list_iterator has no length; a Loader takes map-style data sets"),
        ({"batch_size": 0}, "batch_size=0"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(nhwc.DataError, match=said):
        Loader(**{"dataset": Numbered(), "batch_size": 4, **options})


def test_nothing_is_said_where_all_is_well(folder: Path) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in Loader(ImageFolder(folder, train_transform(8)), 4, mean=MEAN, std=STD):
            pass
    assert told == []
