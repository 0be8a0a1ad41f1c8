"""Where an iteration stands, and how another goes on from there."""

from __future__ import annotations

import pytest
from data.numbered import Numbered, batches, same

import nhwc
from nhwc.data import Loader

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning"),
]


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
