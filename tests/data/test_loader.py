"""The loader: what it hands out, in which order."""

from __future__ import annotations

import collections
import multiprocessing
import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from data.conftest import CLASSES, PER_CLASS
from data.numbered import Numbered, batches, same

import nhwc
from nhwc.data import ImageFolder, Loader, Synthetic, eval_transform, normalize, train_transform

TOTAL = len(CLASSES) * PER_CLASS
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning"),
]


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


def test_every_sample_draws_its_own_numbers() -> None:
    drawn = [tuple(image[:, 0, 0].tolist()) for images, _labels in batches(Loader(Numbered(), 4)) for image in images]
    assert len(set(drawn)) == len(drawn) == 22


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
        ({"workers": -1}, "workers=-1, prefetch=2: expected whole numbers, at least 0 and 1"),
        ({"workers": "2"}, "workers=.2., prefetch=2: expected whole numbers"),
        ({"unreadable": "skip"}, "unreadable='skip': expected one of drop, replace"),
        ({"mean": 0.5}, "mean and std normalise together; give both or neither"),
        ({"dtype": torch.int8}, "dtype=torch.int8: expected one of torch.float32"),
        ({"device": "gpu"}, "device='gpu'"),
        ({"dataset": iter([1])}, "list_iterator has no length; a Loader takes map-style data sets"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"batch_size": 2.5}, "batch_size=2.5: expected a whole number"),
        ({"batch_size": "a"}, "batch_size=.a.: expected a whole number"),
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
