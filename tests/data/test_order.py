"""Which samples make which batch."""

from __future__ import annotations

import contextlib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import nhwc
from nhwc.data.order import Order
from nhwc.data.seeding import isolated, seed_all, seed_of


def order(length: int, batch_size: int, **options: object) -> Order:
    defaults = {"shuffle": True, "seed": 0, "drop_last": False, "rank": 0, "world_size": 1}
    return Order(length, batch_size, **{**defaults, **options})


@given(st.integers(1, 200), st.integers(1, 12), st.integers(1, 5), st.booleans(), st.integers(0, 3))
def test_all_ranks_together_are_one_process(
    length: int, batch_size: int, world_size: int, drop_last: bool, epoch: int
) -> None:
    ranks = []
    for rank in range(world_size):
        if drop_last and length < batch_size * world_size:
            with pytest.raises(nhwc.DataError, match="drop_last leaves no batch"):
                order(length, batch_size, rank=rank, world_size=world_size, drop_last=True)
            return
        dealt = order(length, batch_size, rank=rank, world_size=world_size, drop_last=drop_last)
        ranks.append(list(dealt.batches(epoch)))
        assert len(dealt) == len(ranks[-1])
    if drop_last:
        assert len({len(each) for each in ranks}) == 1
    alone = list(order(length, batch_size * world_size, drop_last=drop_last).batches(epoch))
    for number, wanted in enumerate(alone):
        parts = [each[number] for each in ranks if number < len(each)]
        assert sorted(index for part in parts for index in part) == sorted(wanted)
        assert all(len(part) <= batch_size for part in parts)
        for rank, part in enumerate(parts):
            assert part == wanted[rank::world_size]
    every = sorted(index for batches in ranks for batch in batches for index in batch)
    assert len(set(every)) == len(every)
    assert len(every) == (length if not drop_last else length // (batch_size * world_size) * batch_size * world_size)


def test_the_order_is_a_matter_of_seed_and_epoch() -> None:
    def dealt(**options: int) -> list[list[int]]:
        epoch = options.pop("epoch", 0)
        return list(order(50, 7, **options).batches(epoch))

    assert dealt() == dealt()
    assert dealt(epoch=1) == dealt(epoch=1)
    assert len({str(each) for each in (dealt(), dealt(seed=1), dealt(epoch=1), dealt(seed=1, epoch=1))}) == 4
    assert sorted(index for batch in dealt(epoch=1) for index in batch) == list(range(50))


def test_without_shuffling_it_is_that_of_the_data_set() -> None:
    assert list(order(5, 2, shuffle=False).batches(3)) == [[0, 1], [2, 3], [4]]


@given(st.integers(0, 8))
def test_a_later_start_leaves_out_what_comes_before(start: int) -> None:
    assert list(order(50, 7).batches(2, start)) == list(order(50, 7).batches(2))[start:]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"length": 0}, "the data set is empty"),
        ({"batch_size": 0}, "batch_size=0: expected a whole number of at least 1"),
        ({"batch_size": 2.5}, "batch_size=2.5: expected a whole number of at least 1"),
        ({"batch_size": "a"}, "batch_size=.a.: expected a whole number of at least 1"),
        ({"rank": 2, "world_size": 2}, "rank=2 of world_size=2: ranks count from 0"),
        ({"rank": -1}, "rank=-1 of world_size=1"),
        (
            {"length": 7, "batch_size": 4, "world_size": 2, "drop_last": True},
            "there are 7 samples, .* has 8; take smaller",
        ),
    ],
)
def test_what_cannot_be_dealt_is_refused(arguments: dict[str, object], said: str) -> None:
    with pytest.raises(nhwc.DataError, match=said):
        order(**{"length": 10, "batch_size": 4, **arguments})


def test_seeds_differ_in_every_part() -> None:
    seeds = {seed_of(seed, epoch, index) for seed in range(10) for epoch in range(10) for index in range(100)}
    assert len(seeds) == 10_000
    assert all(0 <= seed < 1 << 64 for seed in seeds)


def test_seeding_reaches_the_three_generators_and_is_undone() -> None:
    import random

    import numpy as np

    def drawn() -> tuple[object, ...]:
        return torch.rand(3).tolist(), random.random(), np.random.rand()

    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    rounds = []
    for seed in (5, 5, (1 << 64) - 1):
        with isolated():
            seed_all(seed)
            rounds.append(drawn())
    assert rounds[0] == rounds[1]
    assert all(one != other for one, other in zip(rounds[0], rounds[2], strict=True))
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert np.random.get_state()[1].tolist() == states[2]
    with contextlib.suppress(RuntimeError), isolated():
        seed_all(1)
        raise RuntimeError
    assert torch.equal(torch.get_rng_state(), states[0])
