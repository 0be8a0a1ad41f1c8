"""The arena: what lives at one time never overlaps, and little is wasted."""

import random

from nhwc.inference.layout import Buffer, Memory
from nhwc.inference.memory import Life, least_possible, planned, rounded
from nhwc.inference.native import ALIGNMENT_BYTES


def some_lives(seed: int) -> dict[Buffer, Life]:
    number = random.Random(seed)
    lives = {}
    for _ in range(number.randint(1, 40)):
        first = number.randint(0, 30)
        lives[Buffer(Memory.ARENA, number.choice([0, 1, 17, 500, 4096]))] = Life(first, first + number.randint(0, 8))
    return lives


def test_buffers_that_live_at_one_time_do_not_overlap() -> None:
    for seed in range(100):
        lives = some_lives(seed)
        size = planned(lives)
        assert least_possible(lives) <= size
        for one, life in lives.items():
            assert one.offset % ALIGNMENT_BYTES == 0
            assert one.offset + 4 * one.size <= size
            for other, others_life in lives.items():
                if one is not other and life.meets(others_life) and one.size and other.size:
                    apart = one.offset + rounded(4 * one.size) <= other.offset
                    assert apart or other.offset + rounded(4 * other.size) <= one.offset


def test_a_chain_needs_two_buffers() -> None:
    lives = {Buffer(Memory.ARENA, 16): Life(step, step + 1) for step in range(10)}
    assert planned(lives) == 2 * 64


def test_nothing_needs_nothing() -> None:
    assert planned({}) == least_possible({}) == 0
